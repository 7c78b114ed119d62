"""Checks docker/compose.yaml where there is no Docker: its form, and what its parts point at.

Not a copy of Docker's own schema: it knows the keys that this repository uses, and refuses others,
so that a typing error is found before the file is deployed.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docker" / "compose.yaml"
TOP_KEYS = frozenset({"name", "services", "volumes", "networks", "secrets"})
SERVICE_KEYS = frozenset(
    {
        "build",
        "cap_add",
        "cap_drop",
        "command",
        "depends_on",
        "entrypoint",
        "env_file",
        "environment",
        "expose",
        "healthcheck",
        "image",
        "init",
        "networks",
        "ports",
        "read_only",
        "restart",
        "secrets",
        "security_opt",
        "stop_grace_period",
        "tmpfs",
        "user",
        "volumes",
    }
)
HEALTH_KEYS = frozenset({"test", "interval", "timeout", "retries", "start_period"})
CONDITIONS = frozenset({"service_started", "service_healthy", "service_completed_successfully"})
RESTARTS = frozenset({"no", "always", "on-failure", "unless-stopped"})
DURATION = re.compile(r"(\d+(ms|s|m|h))+")
# `name[:tag]` or `owner/name[:tag]`: a first part with a dot or a port would be a host.
IMAGE = re.compile(r"[a-z0-9_-]+(/[a-z0-9._-]+)?(:[\w.-]+)?")
PORT = re.compile(r"((\d{1,3}\.){3}\d{1,3}:)?(\d+|\$\{\w+:-\d+\}):\d+(/(tcp|udp))?")
VARIABLE = re.compile(r"\$\{[A-Z][A-Z0-9_]*((:?[-?+]).*)?\}", re.DOTALL)


def main(path: Path = FILE) -> int:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        print(f"{path}: {error}")
        return 1
    problems = list(problems_of(document, folder=path.parent))
    for problem in problems:
        print(f"{path.name}: {problem}")
    return 1 if problems else 0


def problems_of(document: Any, *, folder: Path) -> Iterator[str]:
    """Sentences about what is wrong; none when the document is fine.

    Args:
        document: the parsed file.
        folder: where it lies; its relative paths begin there.
    """
    if not isinstance(document, dict) or not isinstance(document.get("services"), dict):
        yield "must be a mapping with `services`"
        return
    for key in (key for key in document if key not in TOP_KEYS and not key.startswith("x-")):
        yield f"unknown key {key!r}"
    for name, service in document["services"].items():
        if not isinstance(service, dict):
            yield f"{name}: must be a mapping"
            continue
        for problem in _service(document, service, folder):
            yield f"{name}: {problem}"
    for variable in _bad_variables(document):
        yield f"cannot read the variable in {variable!r}"


def _service(document: dict[str, Any], service: dict[str, Any], folder: Path) -> Iterator[str]:
    for key in service.keys() - SERVICE_KEYS:
        yield f"unknown key {key!r}"
    yield from _source(service, folder)
    yield from _dependencies(document, service)
    yield from _health(service)
    yield from _mounts(document, service, folder)
    if service.get("restart", "no") not in RESTARTS:
        yield f"restart {service['restart']!r} is none of {', '.join(sorted(RESTARTS))}"
    for port in service.get("ports", ()):
        if not isinstance(port, str) or not PORT.fullmatch(port):
            yield f"port {port!r} is not [address:]port:port in quotes"
    for name, value in _environment(service):
        if not isinstance(value, str):
            yield f"environment {name} must be text in quotes, not {value!r}"


def _source(service: dict[str, Any], folder: Path) -> Iterator[str]:
    """Where the image comes from: a name without a host, or a Dockerfile that is there."""
    image, build = service.get("image"), service.get("build")
    if image is None and build is None:
        yield "has neither image nor build"
    if image is not None and not IMAGE.fullmatch(image):
        yield f"image {image!r} is not a plain name"
    if build is not None:
        context = folder / build["context"]
        if not (context / build.get("dockerfile", "Dockerfile")).is_file():
            yield "its Dockerfile is not there"


def _dependencies(document: dict[str, Any], service: dict[str, Any]) -> Iterator[str]:
    for name, how in service.get("depends_on", {}).items():
        other = document["services"].get(name)
        if other is None:
            yield f"depends on {name!r}, which is not there"
        elif how.get("condition") not in CONDITIONS:
            yield f"depends on {name!r} with an unknown condition"
        elif how["condition"] == "service_healthy" and "healthcheck" not in other:
            yield f"waits for {name!r} to be healthy, which has no health check"


def _health(service: dict[str, Any]) -> Iterator[str]:
    health = service.get("healthcheck")
    if health is None:
        return
    for key in health.keys() - HEALTH_KEYS:
        yield f"healthcheck: unknown key {key!r}"
    test = health.get("test")
    if not isinstance(test, list) or test[0] not in {"CMD", "CMD-SHELL"}:
        yield "healthcheck: test must be a list that begins with CMD or CMD-SHELL"
    for key in ("interval", "timeout", "start_period"):
        if key in health and not DURATION.fullmatch(str(health[key])):
            yield f"healthcheck: {key} {health[key]!r} is no duration"


def _mounts(document: dict[str, Any], service: dict[str, Any], folder: Path) -> Iterator[str]:
    """Named volumes, networks and secrets are declared; files that are mounted are there."""
    for mount in service.get("volumes", ()):
        source = mount.split(":", 1)[0]
        if source.startswith("."):
            if not (folder / source).exists():
                yield f"mounts {source}, which is not there"
        elif source not in document.get("volumes", {}):
            yield f"mounts the volume {source!r}, which is not declared"
    for kind in ("networks", "secrets"):
        for name in service.get(kind, ()):
            if name not in document.get(kind, {}):
                yield f"uses {name!r}, which is not declared under {kind}"


def _environment(service: dict[str, Any]) -> list[tuple[str, Any]]:
    environment = service.get("environment", {})
    return list(environment.items()) if isinstance(environment, dict) else [("", environment)]


def _bad_variables(value: Any) -> Iterator[str]:
    """Texts in which a `$` begins neither `$$` nor a `${VARIABLE}`."""
    if isinstance(value, dict):
        for part in value.values():
            yield from _bad_variables(part)
    elif isinstance(value, list):
        for part in value:
            yield from _bad_variables(part)
    elif isinstance(value, str) and "$" in VARIABLE.sub("", value.replace("$$", "")):
        yield value


if __name__ == "__main__":
    sys.exit(main())
