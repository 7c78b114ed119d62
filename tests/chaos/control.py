"""The control plane's processes, each by itself, so that each can be killed, stopped, doubled."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.nodes import kill
from tests.services import ports

ROOT = Path(__file__).resolve().parents[2]
ENDS_WITHIN_S = 15.0


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
    starts: int = 0

    def start(self, name: str) -> None:
        """Start it; nothing while it runs."""
        process = self.running.get(name)
        if process is not None and process.poll() is None:
            return
        self.starts += 1
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *self.commands[name]],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
            )

    def kill(self, name: str) -> None:
        """As by the kernel's out-of-memory killer: at once, with all its threads."""
        process = self.running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def pause(self, name: str, *, is_on: bool) -> None:
        """SIGSTOP, or SIGCONT."""
        process = self.running.get(name)
        if process is not None:
            kill(process.pid, signal.SIGSTOP if is_on else signal.SIGCONT)

    def ended(self) -> dict[str, int]:
        """Programs that ended by themselves, with their status."""
        found = {name: process.poll() for name, process in self.running.items()}
        return {name: status for name, status in found.items() if status is not None}

    def close(self) -> None:
        """End all: asked first, killed if they do not."""
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            ports.stop(process, signal=signal.SIGTERM, timeout_s=ENDS_WITHIN_S)
        self.running.clear()


def programs(*, web_ports: list[int], home: Path) -> dict[str, tuple[str, ...]]:
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
    found: dict[str, tuple[str, ...]] = {}
    for number, port in enumerate(web_ports, start=1):
        found[f"web-{number}"] = (
            *("-m", "uvicorn", "rpm.asgi:application", "--host", "127.0.0.1", "--port", str(port)),
            *("--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "3"),
        )
    for number in (1, 2):
        found[f"worker-{number}"] = (*worker, *options, "--hostname", f"worker-{number}@chaos")
        found[f"beat-{number}"] = (*beat, "--schedule", str(home / f"beat-{number}"))
    found["server-1"] = ("manage.py", "serve_passes")
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
        "RPM_PASS_EVERY_S": "1",
        "RPM_DATABASE_POOL": "1",
        "RPM_LOG_LEVEL": "WARNING",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }
