"""A task as a line for `rpmctl` and as a request with `curl`, to be copied."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from apps.core.keyring import HIDDEN
from apps.tasks.redaction import redact
from apps.tasks.task_spec import TaskSpec

# Options of `rpmctl enqueue`, in the order of the line; a list is repeated. A switch is
# there where it differs from its default.
_OPTIONS: Mapping[str, str] = {
    "queue": "--queue",
    "name": "--name",
    "image": "--image",
    "environment": "--env",
    "secrets": "--secret",
    "working_dir": "--working-dir",
    "volumes": "--volume",
    "tags": "--tag",
    "request": "--gpus",
    "replicas": "--replicas",
    "priority": "--priority",
    "time_limit_s": "--time-limit",
    "retries": "--retries",
    "checkpoint_volume": "--checkpoint-volume",
    "is_preemptible": "--no-preemptible",
    "is_restartable": "--no-restartable",
    "hold": "--hold",
    "array": "--array",
    "after": "--after",
}
# Where a field needs a file, which the line cannot hold.
_WITH_FILE = {"abort_callback": "--abort-script FILE"}
# In place of a hidden value in a request.
_PLACE = "<value of {name}>"


@dataclass(frozen=True, slots=True)
class TaskCommands:
    """`missing` are options that need a file; neither command holds values of secrets.

    `rpmctl` takes hidden values from variables of the same names, where it is called.
    """

    rpmctl: str
    curl: str
    missing: tuple[str, ...]
    variables: tuple[str, ...]

    @classmethod
    def of(cls, spec: TaskSpec, *, address: str, own: Iterable[str]) -> Self:
        """The commands for a task of a user; `own` are the user's patterns of hidden variables."""
        values = _values(spec, own)
        line = ["rpmctl", "enqueue"]
        missing = []
        for name, value in values.items():
            words = _words(name, value)
            if words is None and name != "command":
                missing.append(_WITH_FILE.get(name, name))
            line += words or []
        rest = ["--", *spec.command] if spec.command else []
        body = msgspec.json.encode(values).decode()
        curl = (
            'curl -u "$RPM_KEY:$RPM_SECRET" -H "Content-Type: application/json" '
            f"-d {shlex.quote(body)} {address}/api/v1/tasks/"
        )
        variables = [
            name
            for kind in ("environment", "secrets")
            for name, value in values.get(kind, {}).items()
            if value == _PLACE.format(name=name)
        ]
        return cls(shlex.join([*line, *rest]), curl, tuple(missing), tuple(variables))


def _values(spec: TaskSpec, own: Iterable[str]) -> dict[str, Any]:
    """What differs from the defaults, without any secret value."""
    plain = msgspec.to_builtins(TaskSpec(name=spec.name))
    values = {
        name: value
        for name, value in msgspec.to_builtins(spec).items()
        if name == "name" or value != plain[name]
    }
    shown = {
        "environment": redact(spec.environment, own),
        "secrets": dict.fromkeys(spec.secrets, HIDDEN),
    }
    for kind in shown.keys() & values.keys():
        values[kind] = {
            name: _PLACE.format(name=name) if value == HIDDEN else value
            for name, value in shown[kind].items()
        }
    return {name: values[name] for name in (*_OPTIONS, *values) if name in values}


def _words(name: str, value: Any) -> list[str] | None:
    """The option and its value; None where there is none for it."""
    option = _OPTIONS.get(name)
    if option is None:
        return None
    if isinstance(value, bool):
        return [option]
    if name == "array":
        limit = f"%{value['limit']}" if value["limit"] else ""
        return [option, f"0-{value['size'] - 1}{limit}"]
    if name == "request" and isinstance(value, Mapping):
        option = "--request"
    if name == "after":
        value = [f"{one['task']}:{one['when']}" for one in value]
    values = _pairs(value) if isinstance(value, Mapping) else value
    values = values if isinstance(values, list) else [values]
    # Together with its option where it begins like one.
    return [word for one in values for word in _option(option, str(one))]


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [
        name if value == _PLACE.format(name=name) else f"{name}={value}"
        for name, value in values.items()
    ]


def _option(option: str, value: str) -> list[str]:
    return [f"{option}={value}"] if value.startswith("-") else [option, value]
