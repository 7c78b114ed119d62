"""The control plane's processes, each by itself, so that each can be killed, stopped, doubled."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.services import ports

ROOT = Path(__file__).resolve().parents[2]
ENDS_WITHIN_S = 15.0
# Makes passes and serves nodes by itself; runs only in place of workers and servers.
ALONE = "alone-1"


@dataclass(slots=True)
class ControlPlane:
    """Names of programs and what runs of them now.

    Args:
        environment: of every program.
        commands: program -> its arguments after `python`.
    """

    folder: Path
    environment: dict[str, str]
    commands: dict[str, tuple[str, ...]]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: list[tuple[str, int]] = field(default_factory=list)
    # Programs that are to end by themselves, at a step that they were started for.
    armed: set[str] = field(default_factory=set)

    def start(self, name: str, *, crash_at: str = "") -> None:
        """Start it; nothing while it runs.

        Args:
            crash_at: the step at which it ends; the caller waits for it with `has_ended`.
        """
        process = self.running.get(name)
        if process is not None and process.poll() is None:
            return
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *self.commands[name]],
                cwd=ROOT,
                env=self.environment | ({"RPM_CRASH_AT": crash_at} if crash_at else {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
            )

        if crash_at:
            self.armed.add(name)

    def has_ended(self, name: str) -> bool:
        """Whether a program has come to the step that it was started for."""
        process = self.running.get(name)
        return process is not None and process.poll() is not None

    def kill(self, name: str) -> None:
        """As by the kernel's out-of-memory killer: at once, with all its threads."""
        self.armed.discard(name)
        process = self.running.pop(name, None)
        if process is not None:
            # Its children too, as a service manager would.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def pause(self, name: str, *, is_on: bool) -> None:
        """SIGSTOP, or SIGCONT."""
        process = self.running.get(name)
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGSTOP if is_on else signal.SIGCONT)

    def revive(self) -> None:
        """Start again what ended by itself, as a service manager does, and remember it."""
        for name, process in list(self.running.items()):
            status = process.poll()
            if status is not None and name not in self.armed:
                self.ended.append((name, status))
                self.start(name)

    def close(self) -> None:
        """End all: asked first, killed if they do not."""
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            ports.stop(process, signal=signal.SIGTERM, timeout_s=ENDS_WITHIN_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self.running.clear()


def programs(*, web_ports: tuple[int, int], home: Path) -> dict[str, tuple[str, ...]]:
    """Every program of an installation: two of most kinds, as a careful one has them."""
    worker = ("-m", "celery", "-q", "-A", "rpm", "worker", "--pool", "threads")
    options = (
        "--concurrency",
        "4",
        "--loglevel",
        "warning",
        "--without-gossip",
        "--without-mingle",
    )
    beat = ("-m", "celery", "-q", "-A", "rpm", "beat", "--loglevel", "warning", "--pidfile=")
    first, second = (f"127.0.0.1:{port}" for port in web_ports)
    found: dict[str, tuple[str, ...]] = {
        "web-1": (
            *("-m", "uvicorn", "rpm.asgi:application", "--host", "127.0.0.1"),
            *("--port", first.partition(":")[2], "--no-access-log", "--log-level", "warning"),
            *("--timeout-graceful-shutdown", "3"),
        ),
        # Over WSGI tasks come in by a shorter way.
        "web-2": (
            *("-m", "gunicorn", "rpm.wsgi:application", "--bind", second, "--workers", "1"),
            *("--threads", "4", "--no-control-socket", "--log-level", "warning"),
        ),
    }
    for number in (1, 2):
        found[f"worker-{number}"] = (*worker, *options, "--hostname", f"worker-{number}@chaos")
        found[f"beat-{number}"] = (*beat, "--schedule", str(home / f"beat-{number}"))
        found[f"server-{number}"] = ("manage.py", "serve_nodes")
    found[ALONE] = ("manage.py", "serve_passes")
    return found


def control_environment(
    *, database_url: str, redis_url: str, home: Path, clock_library: Path | None, clock: Path
) -> dict[str, str]:
    """Variables of every program; nothing of the caller's own installation."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RPM_") and name not in {"DATABASE_URL", "REDIS_URL"}
    }
    preload = {}
    if clock_library is not None:
        preload = {"LD_PRELOAD": str(clock_library), "CHAOS_CLOCK": str(clock)}
    return {
        **kept,
        **preload,
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "RPM_HOME": str(home),
        "RPM_SYNC_TICK_S": "1",
        "RPM_ALLOW_OWN_ACCOUNT": "1",
        "RPM_PASS_EVERY_S": "1",
        "RPM_DATABASE_POOL": "1",
        "RPM_LOG_LEVEL": "WARNING",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }
