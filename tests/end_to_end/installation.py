"""A whole installation, started as its users start it: `manage.py up`, in processes of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tests.services import ports
from tests.services.cdi import CdiDevice
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode
from tests.services.timeouts import scale_timeout

ROOT = Path(__file__).resolve().parents[2]
START_WITHIN_S = 180.0
STOP_WITHIN_S = 30.0
# Other tests share the machine: this bounds the waiting time and says nothing about speed.
LOOK_FOR_S = 90.0
# As in `make run`; other values run periodic work sooner, and cost processor time.
AS_SHIPPED = {"RPM_SYNC_TICK_S": "10", "RPM_PASS_EVERY_S": "5"}

T = TypeVar("T")


@dataclass(slots=True)
class Installation:
    """Its address, its one-time token, and its command line."""

    folder: Path
    environment: dict[str, str]
    port: int
    output: list[str] = field(default_factory=list)
    token: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def manage(self, *arguments: str, content: str = "") -> str:
        """Run one command of `manage.py` and return what it printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            input=content,
            capture_output=True,
            text=True,
            timeout=scale_timeout(600),
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def person(self, name: str, *groups: str, password: str) -> "Client":
        """Add a user, and return a REST client of that user."""
        flags = [flag for group in groups for flag in ("--group", group)]
        words = self.manage(
            *("person", "add", name, "--password-stdin", "--credential", *flags),
            content=password + "\n",
        )
        key, secret = words.split()
        return Client(
            httpx.Client(
                base_url=f"{self.address}/api/v1", auth=(key, secret), timeout=scale_timeout(60)
            ),
            key,
            secret,
        )


@dataclass(frozen=True, slots=True)
class Client:
    """A REST client with a credential."""

    http: httpx.Client
    key: str = ""
    secret: str = ""

    def get(self, path: str, **parameters: Any) -> Any:
        return self._checked(self.http.get(path, params=parameters))

    def post(self, path: str, body: object = None, **headers: str) -> Any:
        return self._checked(self.http.post(path, json=body, headers=headers))

    def put(self, path: str, body: object, **headers: str) -> Any:
        return self._checked(self.http.put(path, json=body, headers=headers))

    def patch(self, path: str, body: object, **headers: str) -> Any:
        return self._checked(self.http.patch(path, json=body, headers=headers))

    @staticmethod
    def _checked(response: httpx.Response) -> Any:
        assert response.status_code < 400, f"{response.status_code}: {response.text}"
        return response.json() if response.content else None


def add_node(
    installation: Installation,
    node: SshdNode,
    podman: PodmanStore,
    pool: str,
    name: str,
    devices: tuple[CdiDevice, ...],
) -> None:
    """Let the installation reach a node, whose containers get these devices."""
    pattern = devices[0].cdi.removesuffix("0") + "{index}"
    variables = [f"--env={key}={value}" for key, value in podman.environment.items()]
    installation.manage(
        *("node", "add", name, "--pool", pool, "--address", node.address),
        *("--port", str(node.port), "--user", node.user, "--key", str(node.key_path)),
        *("--fingerprint", node.host_key.fingerprint, "--runtime", "podman"),
        *("--state-dir", node.home),
        *("--simulated-gpus", str(len(devices)), "--simulated-cdi", pattern),
        *variables,
    )


def until(look: Callable[[], T | None], *, what: str, within_s: float = LOOK_FOR_S) -> T:
    """Poll until there is a value; fails with `what` and the last value."""
    began = time.monotonic()
    while True:
        seen = look()
        if seen:
            return seen
        waited_s = time.monotonic() - began
        assert waited_s < scale_timeout(within_s), f"never happened: {what}; last seen: {seen!r}"
        time.sleep(0.1)


@contextlib.contextmanager
def installed(folder: Path, database_url: str, **variables: str) -> Iterator[Installation]:
    """Start `manage.py up` on an empty database; Ctrl-C ends it."""
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "RPM_HOME": str(folder / "home"),
        "RPM_SYNC_TICK_S": "1",
        "RPM_ALLOW_OWN_ACCOUNT": "1",
        "RPM_PASS_EVERY_S": "1",
        "PYTHONUNBUFFERED": "1",
        **variables,
    }
    # Its own bundled Redis, as on a machine that has none.
    environment.pop("REDIS_URL", None)
    installation = Installation(folder, environment, ports.free_port())
    log = folder / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(installation.port)],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
        )
    try:
        _wait_until_up(process, installation, log)
        yield installation
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(scale_timeout(STOP_WITHIN_S))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"Ctrl-C did not end it:\n{_tail(log)}")


def _wait_until_up(process: subprocess.Popen[bytes], installation: Installation, log: Path) -> None:
    def is_up() -> bool:
        assert process.poll() is None, _tail(log)
        return "RPM is up at" in log.read_text(errors="replace")

    until(is_up, what="RPM is up", within_s=START_WITHIN_S)
    words = until(
        lambda: re.search(r"up at http://127\.0\.0\.1:(\d+)/", log.read_text()), what="the address"
    )
    installation.port = int(words[1])
    found = until(
        lambda: re.search(r"set-up/\?token=([\w-]+)", log.read_text()), what="the set-up token"
    )
    installation.token = found[1]


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-6000:]
