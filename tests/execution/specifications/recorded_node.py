"""Launches through a real sshd whose podman records its arguments."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.execution.client import NodeClient
from apps.execution.protocol.answers import Clocks, LaunchAnswer, Refusal, decode
from apps.execution.protocol.requests import PROTOCOL
from tests.execution.nodes import INSTALLATION, TestedNode
from tests.services.ports import wait_until

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Record:
    """What the runtime was handed: its arguments, its own environment, and the two files."""

    arguments: list[str]
    environment: list[str]
    variables: dict[str, str]
    secrets: dict[str, str]

    @property
    def options(self) -> list[str]:
        return self.arguments[2 : self.arguments.index("--")]

    @property
    def operands(self) -> list[str]:
        return self.arguments[self.arguments.index("--") + 1 :]

    def values(self, option: str) -> list[str]:
        """The values of an option, in order."""
        start = f"{option}="
        return [one.removeprefix(start) for one in self.options if one.startswith(start)]


def launched(
    client: NodeClient, task_id: str, fields: dict[str, Any], clocks: Clocks
) -> LaunchAnswer | Refusal:
    """Ask the node to launch this, past the checks of the control plane."""
    spec = {
        "runtime": "podman",
        "cpu_milli": 0,
        "memory_mb": 0,
        "shm_mb": 0,
        "pids": 100,
        "network": "default",
        "read_only": False,
        **fields,
    }
    request = {
        "verb": "launch",
        "installation": INSTALLATION,
        "protocol": PROTOCOL,
        "task_id": task_id,
        "generation": 1,
        "rank": 0,
        "boot_id": clocks.boot_id,
        "not_after_s": clocks.uptime_s + 86_400,
        "start_wait_s": 60,
        "spec": spec,
    }
    # Escapes carry what is no text (half a surrogate pair), which msgspec would not even send.
    content = client.transport.exchange(json.dumps(request).encode(), timeout_s=TIMEOUT_S)
    return decode(content, LaunchAnswer)[1]


class RecordedNode:
    """A node whose `podman` is the recorder. Safe to use from several threads."""

    def __init__(self, node: TestedNode, folder: Path) -> None:
        self.client = node.client
        self.folder = folder
        self.clocks = node.probe().clocks

    def launch(self, number: int, fields: dict[str, Any], clocks: Clocks) -> Record | Refusal:
        """Launch task number so-and-so, from an image that has the folder it starts in."""
        parts = str(fields.get("working_dir") or "").split("/")
        if ".." not in parts:
            # What no folder can be called is refused.
            with suppress(OSError, ValueError):
                (self.folder.parent / "image").joinpath(*parts).mkdir(parents=True, exist_ok=True)
        answer = launched(self.client, f"t{number}", fields, clocks)
        return answer if isinstance(answer, Refusal) else self._record(f"t{number}")

    def _record(self, task_id: str) -> Record:
        name = f"rpm-{INSTALLATION}-{task_id}-1-0"
        done = self.folder / f"{name}.done"
        wait_until(done.exists, what=str(done))
        arguments = _strings(self.folder / f"{name}.argv")
        kept = {
            path.stem: path.read_bytes().decode() for path in self.folder.glob(f"{name}-*.secret")
        }
        return Record(
            arguments=arguments,
            environment=_strings(self.folder / f"{name}.environ"),
            variables=_variables(self.folder / f"{name}.env"),
            secrets=_secrets(arguments, kept),
        )


def _strings(path: Path) -> list[str]:
    *strings, rest = path.read_bytes().split(b"\0")
    assert rest == b""
    return [one.decode() for one in strings]


def _secrets(arguments: list[str], kept: dict[str, str]) -> dict[str, str]:
    """Values by the names under which the container finds them; each that is kept is used once."""
    options = arguments[: arguments.index("--")]
    asked = [one.removeprefix("--secret=") for one in options if one.startswith("--secret=")]
    ids = [one.partition(",")[0] for one in asked]
    assert sorted(ids) == sorted(kept)
    targets = [one.partition("target=")[2].partition(",")[0] for one in asked]
    return {
        target.rpartition("/")[2]: kept[given] for target, given in zip(targets, ids, strict=True)
    }


def _variables(path: Path) -> dict[str, str]:
    """As podman and docker read an environment file: a line is a variable, to its very end."""
    *lines, rest = path.read_bytes().split(b"\n")
    assert rest == b""
    pairs = [line.decode().partition("=") for line in lines]
    assert len({name for name, _, _ in pairs}) == len(pairs)
    return {name: value for name, _, value in pairs}
