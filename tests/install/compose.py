"""The services of docker/compose.yaml as containers of podman: what `docker compose` does here.

Only the keys that the file uses; tools/compose.py refuses others.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.install.machine import say
from tests.services import ports

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker"
VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")
FLAGS = {"cap_drop": "--cap-drop", "security_opt": "--security-opt", "tmpfs": "--tmpfs"}
HEALTHY_S = 120


@dataclass(frozen=True, slots=True)
class Compose:
    """A project with its services.

    Args:
        variables: those of docker/.env.
        env_file: stands in for docker/rpm.env.
        images: the image that stands in for one of a registry.
        podman: environment that leads podman to its store.
    """

    variables: Mapping[str, str]
    env_file: Path
    images: Mapping[str, str]
    podman: Mapping[str, str]

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
        return found

    def run(self, *arguments: str, content: str = "") -> subprocess.CompletedProcess[str]:
        """Run podman; stdout and stderr are texts."""
        return subprocess.run(
            ["podman", *arguments],
            env=os.environ | self.podman,
            input=content,
            capture_output=True,
            text=True,
            check=False,
        )

    def done(self, *arguments: str, content: str = "") -> str:
        """What podman prints; an error of it ends the test."""
        ran = self.run(*arguments, content=content)
        if ran.returncode != 0:
            raise SystemExit(f"status {ran.returncode}: podman {' '.join(arguments)}\n{ran.stderr}")
        return ran.stdout.strip()

    def networks(self) -> None:
        for name, options in self.document["networks"].items():
            internal = ["--internal"] if (options or {}).get("internal") else []
            self.done("network", "create", *internal, name)

    def up(self) -> list[str]:
        """Start every service after those that it depends on; their names in that order.

        A container of before is replaced, as `up -d` does after a change.
        """
        services = self.document["services"]
        started: list[str] = []
        while len(started) < len(services):
            for name, service in services.items():
                if name in started or not set(service.get("depends_on", {})) <= set(started):
                    continue
                for other, needed in service.get("depends_on", {}).items():
                    self._wait_for(other, needed["condition"])
                self.run("rm", "--force", "--time=30", name)
                self.done("run", "--detach", "--name", name, *self.arguments(name, service))
                started.append(name)
                say(f"{name}: started\n")
        for name in started:
            if "healthcheck" in services[name]:
                self._wait_for(name, "service_healthy")
                say(f"{name}: healthy\n")
        return started

    def arguments(self, name: str, service: Mapping[str, Any]) -> list[str]:
        """The options, image and command of one service for `podman run`."""
        networks = [f"{network}:alias={name}" for network in service["networks"]]
        made = [f"--network={network}" for network in networks]
        made += [f"{flag}={value}" for key, flag in FLAGS.items() for value in service.get(key, [])]
        made += ["--init"] if service.get("init") else []
        made += ["--read-only"] if service.get("read_only") else []
        made += [f"--volume={self._volume(text)}" for text in service.get("volumes", [])]
        made += [f"--env-file={self.env_file}"] if "env_file" in service else []
        made += [
            f"--env={key}={self.text(str(value))}"
            for key, value in service.get("environment", {}).items()
        ]
        made.append(self.images.get(service["image"], service["image"]))
        return made + [self.text(part) for part in service.get("command", [])]

    def text(self, text: str) -> str:
        """A text of the file with its variables put in."""
        filled = VARIABLE.sub(lambda found: self.variables.get(found[1], found[2] or ""), text)
        return filled.replace("$$", "$")

    def health(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run the health check of a service once."""
        kind, *parts = self.document["services"][name]["healthcheck"]["test"]
        test = [self.text(part) for part in parts]
        return self.run("exec", name, *(["sh", "-c", test[0]] if kind == "CMD-SHELL" else test))

    def address(self, name: str, network: str) -> str:
        form = f'{{{{(index .NetworkSettings.Networks "{network}").IPAddress}}}}'
        return self.done("inspect", f"--format={form}", name)

    def _volume(self, text: str) -> str:
        source, rest = text.split(":", 1)
        return f"{FOLDER / source}:{rest}" if source.startswith(".") else text

    def _wait_for(self, name: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            status = self.done("wait", name)
            if status != "0":
                raise SystemExit(f"{name} ended with {status}\n{self.words(name)}")
            return
        try:
            ports.wait_until(
                lambda: self.health(name).returncode == 0,
                what=f"{name} healthy",
                timeout_s=HEALTHY_S,
            )
        except TimeoutError as error:
            raise SystemExit(f"{error}: {self.health(name)}\n{self.words(name)}") from error

    def words(self, name: str) -> str:
        """The log of a service."""
        ran = self.run("logs", name)
        return ran.stdout + ran.stderr
