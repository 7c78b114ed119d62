"""The options of a task: one for every field that REST accepts, the same wherever one is given."""

import os
import re
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from rpm_client.cli.access import whole_ids

# The options of every field; a test compares this with docs/openapi.yaml.
OPTIONS: dict[str, tuple[str, ...]] = {
    "name": ("--name",),
    "queue": ("--queue",),
    "image": ("--image",),
    "command": (),
    "environment": ("--env",),
    "secrets": ("--secret",),
    "working_dir": ("--working-dir",),
    "request": ("--gpus", "--request"),
    "replicas": ("--replicas",),
    "volumes": ("--volume",),
    "priority": ("--priority",),
    "is_preemptible": ("--preemptible",),
    "is_restartable": ("--restartable",),
    "time_limit_s": ("--time-limit",),
    "retries": ("--retries",),
    "checkpoint_volume": ("--checkpoint-volume",),
    "abort_callback": ("--abort-script", "--abort-language", "--abort-timeout"),
    "tags": ("--tag",),
    "hold": ("--hold",),
    "array": ("--array",),
    "after": ("--after",),
}
Text = Optional[str]
Number = Optional[int]
Texts = Optional[list[str]]
Switch = Optional[bool]
MERGED = ("environment", "secrets")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def _options(
    *,
    queue: Annotated[Text, typer.Option("--queue", "-q", help="Without: a draft.")] = None,
    name: Annotated[Text, typer.Option("--name", help="Default: the command.")] = None,
    image: Annotated[Text, typer.Option("--image", "-i", help="As the nodes pull it.")] = None,
    env: Annotated[
        Texts,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME=VALUE",
            help="A variable; NAME alone takes it from here. Repeatable.",
        ),
    ] = None,
    secret: Annotated[
        Texts,
        typer.Option(
            "--secret",
            metavar="NAME[=@FILE]",
            help="A file in the container: from a file here, or from the variable. Repeatable.",
        ),
    ] = None,
    working_dir: Annotated[Text, typer.Option("--working-dir", help="In the container.")] = None,
    gpus: Annotated[Text, typer.Option("--gpus", help="Dynamic profiles: per member.")] = None,
    request: Annotated[
        Texts,
        typer.Option(
            "--request", metavar="KEY=AMOUNT", help="Dynamic profiles: per member. Repeatable."
        ),
    ] = None,
    replicas: Annotated[Number, typer.Option(help="Members that start together.")] = None,
    volume: Annotated[
        Texts, typer.Option("--volume", "-v", help="A volume's name; repeatable.")
    ] = None,
    priority: Annotated[
        Number, typer.Option(help="From -1000 to what the queue allows; higher starts first.")
    ] = None,
    preemptible: Annotated[
        Switch,
        typer.Option("--preemptible/--no-preemptible", help="Whether others may preempt it."),
    ] = None,
    restartable: Annotated[
        Switch,
        typer.Option("--restartable/--no-restartable", help="Whether it may run a second time."),
    ] = None,
    time_limit: Annotated[
        Text, typer.Option("--time-limit", help="Seconds, or such as 90m, 12h or 2d.")
    ] = None,
    retries: Annotated[Number, typer.Option(help="How often it may fail and run again.")] = None,
    checkpoint_volume: Annotated[
        Text, typer.Option("--checkpoint-volume", help="The volume of its checkpoints.")
    ] = None,
    abort_script: Annotated[
        Text, typer.Option("--abort-script", metavar="FILE", help="Runs in it before it is ended.")
    ] = None,
    abort_language: Annotated[
        Text, typer.Option("--abort-language", help="Of that script: bash or python.")
    ] = None,
    abort_timeout: Annotated[
        Text, typer.Option("--abort-timeout", help="How long that script may take, such as 60s.")
    ] = None,
    tag: Annotated[Texts, typer.Option("--tag", "-t", help="Repeatable.")] = None,
    hold: Annotated[
        Switch, typer.Option("--hold/--no-hold", help="Whether it waits until it is released.")
    ] = None,
    array: Annotated[
        Text,
        typer.Option(
            "--array", metavar="0-LAST[%LIMIT]", help="Equal tasks; LIMIT of them run at once."
        ),
    ] = None,
    after: Annotated[
        Texts,
        typer.Option(
            "--after",
            metavar="TASK[:ok|any|failed]",
            help="Starts after that task has completed, ended or failed. Repeatable.",
            callback=whole_ids,
        ),
    ] = None,
) -> None: ...


# What a line #RPM may name: the other options of a command are not of the task.
PARAMETERS = frozenset(signature(_options).parameters)


def task_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command all of these options; it gets them as `**options`."""
    own = signature(function)
    kept = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    added = [*signature(_options).parameters.values()]
    names = {one.name for one in kept}
    parameters = [*kept, *(one for one in added if one.name not in names)]
    parameters.sort(key=lambda one: one.kind)
    function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    hints = {one.name: one.annotation for one in parameters}
    function.__annotations__ = {**hints, "return": None}
    return function


def described(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a task that these options name; those that were not given are left out."""
    fields = {
        "queue": options["queue"],
        "name": options["name"],
        "image": options["image"],
        "environment": dict(_variable(one) for one in options["env"] or []),
        "secrets": dict(_secret(one) for one in options["secret"] or []),
        "working_dir": options["working_dir"],
        "request": _request(options["gpus"], options["request"] or []),
        "replicas": options["replicas"],
        "volumes": options["volume"],
        "priority": options["priority"],
        "is_preemptible": options["preemptible"],
        "is_restartable": options["restartable"],
        "time_limit_s": seconds(options["time_limit"], "--time-limit"),
        "retries": options["retries"],
        "checkpoint_volume": options["checkpoint_volume"],
        "abort_callback": _abort_callback(options),
        "tags": options["tag"],
        "hold": options["hold"],
        "array": _array(options["array"]),
        "after": [_dependency(one) for one in options["after"] or []],
    }
    # Repeatable options that were not given are a tuple or None, as the library has it.
    return {name: value for name, value in fields.items() if value not in (None, (), [], {})}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """These fields, and `over` in their place; variables and secrets are merged."""
    both = {
        name: {**base[name], **over[name]}
        for name in MERGED
        if name in over and isinstance(base.get(name), dict)
    }
    return {**base, **over, **both}


def seconds(text: Optional[str], option: str) -> Optional[int]:
    """A duration in seconds: 90, 90s, 90m, 12h or 2d."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9})([smhd]?)", text.strip().lower())
    if not found:
        raise typer.BadParameter(
            f"{text!r} is no duration: give 90, 90s, 15m, 12h or 2d.", param_hint=option
        )
    return int(found[1]) * UNITS[found[2]]


def pair(text: str, option: str) -> tuple[str, str]:
    """NAME and VALUE of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint=option)
    return name, value


def file_text(name: str, option: str) -> str:
    """The text of a file on this machine."""
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is not text"
        raise typer.BadParameter(f"{name} cannot be read: {words}.", param_hint=option) from None


def _variable(text: str) -> tuple[str, str]:
    if "=" in text:
        return pair(text, "--env")
    if text not in os.environ:
        raise typer.BadParameter(f"{text} is not set here: give {text}=VALUE.", param_hint="--env")
    return text, os.environ[text]


def _secret(text: str) -> tuple[str, str]:
    """A value on the command line could be read by all users of the machine."""
    name, equals, value = text.partition("=")
    if equals and value.startswith("@"):
        return name, file_text(value[1:], "--secret").rstrip("\n")
    if equals or name not in os.environ:
        raise typer.BadParameter(
            f"Give {name}=@FILE, or set the variable {name} and give {name} alone.",
            param_hint="--secret",
        )
    return name, os.environ[name]


def _dependency(text: str) -> dict[str, str]:
    task, colon, when = text.partition(":")
    return {"task": task, "when": when} if colon else {"task": task}


def _request(gpus: Optional[str], amounts: list[str]) -> Any:
    if not amounts:
        return gpus
    request = dict(pair(one, "--request") for one in amounts)
    if gpus is not None:
        request.setdefault("gpu", gpus)
    return request


def _array(text: Optional[str]) -> Optional[dict[str, int]]:
    if text is None:
        return None
    found = re.fullmatch(r"0-(\d{1,9})(?:%(\d{1,9}))?", text.strip())
    if not found:
        raise typer.BadParameter(
            f"{text!r} is no array: give 0-99, or 0-99%8 for 8 at once; indices begin at 0.",
            param_hint="--array",
        )
    array = {"size": int(found[1]) + 1}
    return array if found[2] is None else {**array, "limit": int(found[2])}


def _abort_callback(options: dict[str, Any]) -> Optional[dict[str, Any]]:
    script, language = options["abort_script"], options["abort_language"]
    limit = seconds(options["abort_timeout"], "--abort-timeout")
    if script is None:
        if language is not None or limit is not None:
            raise typer.BadParameter("Give --abort-script, too.", param_hint="--abort-script")
        return None
    fields = {
        "script": file_text(script, "--abort-script"),
        "language": language,
        "timeout_s": limit,
    }
    return {name: value for name, value in fields.items() if value is not None}
