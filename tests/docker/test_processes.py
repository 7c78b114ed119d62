"""The processes of docker/compose.yaml, started here as their containers would start them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.services import ports

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = "/var/lib/rpm"
FIXED_PORTS = ("8000", "8001")
VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")
# What a container has by its own user and folder, a process here gets by variables.
CHOSEN = {"RPM_WEB_WORKERS": "1", "RPM_WORKER_THREADS": "2"}


@dataclass(frozen=True, slots=True)
class Containers:
    """Runs services of the file as processes, with private folders, ports and servers."""

    services: dict[str, dict[str, Any]]
    replaced: dict[str, str]
    environment: dict[str, str]

    def command(self, name: str) -> list[str]:
        return [self._here(part) for part in self.services[name]["command"]]

    def variables(self, name: str) -> dict[str, str]:
        own = {key: self._here(text) for key, text in self.services[name]["environment"].items()}
        # Addresses of servers are those of this run.
        return os.environ | own | self.environment

    def health(self, name: str) -> subprocess.CompletedProcess[bytes]:
        """Run the health check once."""
        kind, *parts = self.services[name]["healthcheck"]["test"]
        test = [self._here(part) for part in parts]
        command = ["sh", "-c", test[0]] if kind == "CMD-SHELL" else test
        return subprocess.run(
            command, cwd=ROOT, env=self.variables(name), check=False, capture_output=True
        )

    @contextmanager
    def running(self, name: str, log: Path) -> Iterator[None]:
        """Start the service; at its end it must go by itself when asked."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(name),
                cwd=ROOT,
                env=self.variables(name),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            ports.stop(process, signal=signal.SIGTERM, timeout_s=30)
        assert process.returncode in {0, -signal.SIGTERM}, log.read_text()

    def _here(self, text: str) -> str:
        text = VARIABLE.sub(lambda found: CHOSEN.get(found[1], found[2] or ""), text)
        for fixed, own in self.replaced.items():
            text = text.replace(fixed, own)
        return text.replace("$$", "$")


@pytest.fixture
def containers(database_url: str, tmp_path: Path) -> Containers:
    """The services of the file, migrated."""
    home = tmp_path / "home"
    document = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    made = Containers(
        services=document["services"],
        replaced={HOME: str(home)} | {port: str(ports.free_port()) for port in FIXED_PORTS},
        environment={
            "DATABASE_URL": database_url,
            "REDIS_URL": os.environ["REDIS_URL"],
            "RPM_HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )
    migrate = subprocess.run(
        made.command("migrate"),
        cwd=ROOT,
        env=made.variables("migrate"),
        check=False,
        capture_output=True,
        text=True,
    )
    assert migrate.returncode == 0, migrate.stderr
    assert "Make the first administrator: https://localhost/set-up/?token=" in migrate.stdout
    return made


def test_every_process_starts_becomes_healthy_and_ends(
    containers: Containers, tmp_path: Path
) -> None:
    names = ("web", "sockets", "nodes", "worker", "beat")
    # What does not run is not healthy; the worker's check would wait eight seconds in vain.
    assert all(
        containers.health(name).returncode != 0 for name in ("web", "sockets", "nodes", "beat")
    )

    with ExitStack() as running:
        for name in names:
            running.enter_context(containers.running(name, tmp_path / f"{name}.log"))

        for name in names:
            wait_until_healthy(containers, name, tmp_path / f"{name}.log")


def wait_until_healthy(containers: Containers, name: str, log: Path) -> None:
    try:
        ports.wait_until(
            lambda: containers.health(name).returncode == 0, what=f"{name} healthy", timeout_s=90
        )
    except TimeoutError as error:
        pytest.fail(f"{error}: {containers.health(name)}\n{log.read_text()}", pytrace=False)
