"""What a task is, as its owner describes it: read from JSON and checked field by field; pure.

The limits on commands and variables are those of the kernel and of the container runtimes: the
node checks the same again.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec import Meta

from apps.core.containers import (
    CALLBACK_S,
    VARIABLE_BYTES,
    AbortCallback,
    command_problems,
    environment_problems,
    is_variable,
    no_variable,
    text_size,
    working_dir_problems,
)
from apps.core.errors import BadInput
from apps.core.images import ImageName, image_problems
from apps.core.keyring import HIDDEN
from apps.core.parsers import not_json
from apps.core.units import check_request, quantities_text
from apps.tasks.type_errors import type_error

NAME_LENGTH = 200
SECRETS = 64
SECRETS_BYTES = 256 * 1024
SCRIPT_BYTES = 64 * 1024
TAGS = 50
TAG_LENGTH = 100
VOLUMES = 64
VOLUME_LENGTH = 63
AFTER = 64
REPLICAS = 4096
ARRAY = 10_000
RETRIES = 100
PRIORITY = 1000
YEAR_S = 366 * 86_400

Amounts = dict[str, int | float | str] | int | float | str | None


def _bounded(low: int, high: int, words: str = "") -> Meta:
    """Bounds of a number, checked with all other fields and part of the OpenAPI file."""
    return Meta(description=words or None, extra_json_schema={"minimum": low, "maximum": high})


def _sized(most: int, words: str = "") -> Meta:
    """The length of a text of printable characters, checked with all other fields."""
    return Meta(description=words or None, extra_json_schema={"maxLength": most})


class ArraySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal tasks that differ in their index, from 0; `limit` of them run at once, null: all."""

    size: Annotated[int, _bounded(1, ARRAY)]
    limit: Annotated[int | None, _bounded(1, ARRAY)] = None


class DependencySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another task that has to end as `when` says."""

    task: UUID
    when: Literal["ok", "failed", "any"] = "ok"


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task as its owner describes it, under the same names from REST to the node.

    Without a queue it is a draft. `image` is qualified, unless it is none that could be.
    """

    name: Annotated[str, _sized(NAME_LENGTH)]
    queue: Annotated[str | int | None, Meta(description="Name or id of the queue.")] = None
    image: str = ""
    command: list[str] = []
    environment: dict[str, str] = {}
    secrets: Annotated[
        dict[str, str],
        Meta(
            description="Each is a file in the container; NAME_FILE holds its path. "
            "Never shown again."
        ),
    ] = {}
    working_dir: str = ""
    request: Annotated[
        Amounts,
        Meta(description="Amounts per key, or a number of GPUs; dynamic profiles only."),
    ] = None
    replicas: Annotated[int | None, _bounded(1, REPLICAS)] = None
    volumes: list[str] = []
    priority: Annotated[int, _bounded(-PRIORITY, PRIORITY)] = 0
    is_preemptible: bool = True
    is_restartable: bool = True
    time_limit_s: Annotated[int | None, _bounded(1, YEAR_S)] = None
    retries: Annotated[int, _bounded(0, RETRIES)] = 0
    checkpoint_volume: Annotated[
        str, _sized(VOLUME_LENGTH, "Volume on which the task finds its checkpoints again.")
    ] = ""
    abort_callback: AbortCallback | None = None
    tags: list[str] = []
    hold: Annotated[bool, Meta(description="It waits until it is released.")] = False
    array: ArraySpec | None = None
    after: Annotated[
        list[DependencySpec],
        Meta(
            description="It starts after these tasks have ended as needed; not of drafts.",
            extra_json_schema={"maxItems": AFTER},
        ),
    ] = []

    def __post_init__(self) -> None:
        if self.image and not image_problems(self.image):
            msgspec.structs.force_setattr(self, "image", str(ImageName.parse(self.image)))

    def __repr__(self) -> str:
        # Neither logs nor traces show what it holds: secrets are among it.
        return f"TaskSpec({self.name!r})"


FIELDS = TaskSpec.__struct_fields__
# What a change of a draft may name; the others are chosen when it is enqueued.
CHANGEABLE = tuple(name for name in FIELDS if name not in {"queue", "after"})
# Fields that lists show or that queries read have columns of their own.
COLUMNS = (
    *("name", "request", "replicas", "priority", "is_preemptible", "is_restartable"),
    *("time_limit_s", "retries", "tags"),
)
# All others are stored as one JSON object, `Task.content`, which few users may read.
CONTENT = tuple(name for name in CHANGEABLE if name not in {*COLUMNS, "secrets", "hold"})


_METAS = {
    name: hint.__metadata__[0].extra_json_schema or {}
    for name, hint in get_type_hints(TaskSpec, include_extras=True).items()
    if get_origin(hint) is Annotated
}
# Lowest and highest value of the bounded fields, and the length of the sized ones.
_BOUNDS = {
    name: (meta["minimum"], meta["maximum"]) for name, meta in _METAS.items() if "minimum" in meta
}
_LENGTHS = {name: meta["maxLength"] for name, meta in _METAS.items() if "maxLength" in meta}
_decoder = msgspec.json.Decoder(TaskSpec)


def read_spec(body: bytes | msgspec.Raw) -> TaskSpec:
    """The spec of a task from JSON, checked.

    Raises:
        BadInput: one entry of `fields` per thing that is wrong; only the first where it is not
            even of the right type.
    """
    try:
        spec = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise type_error(str(error), FIELDS, struct=TaskSpec) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(str(error), body=bytes(body)) from error
    check(spec)
    return spec


def spec_of(values: Mapping[str, Any]) -> TaskSpec:
    """The checked spec of a task from plain values, such as those of forms and changes.

    Raises:
        BadInput: as `read_spec`.
    """
    try:
        spec = msgspec.convert(dict(values), TaskSpec)
    except msgspec.ValidationError as error:
        raise type_error(str(error), FIELDS, struct=TaskSpec) from error
    check(spec)
    return spec


def stored_spec(content: Mapping[str, Any], columns: Mapping[str, Any]) -> TaskSpec:
    """The spec of a stored task; it was checked when it was stored.

    Raises:
        BadInput: it is not of the right types, as a backup from elsewhere may hold it.
    """
    try:
        return msgspec.convert({**content, **columns}, TaskSpec)
    except (msgspec.ValidationError, TypeError) as error:
        raise type_error(str(error), FIELDS, struct=TaskSpec) from error


def check(spec: TaskSpec) -> None:
    """Check everything that does not depend on a queue.

    Raises:
        BadInput: one entry of `fields` per bad field.
    """
    problems = {
        **_texts(spec),
        **_name(spec),
        **image_problems(spec.image),
        **command_problems(spec.command),
        **environment_problems(spec.environment),
        **_secrets(spec),
        **working_dir_problems(spec.working_dir),
        **_numbers(spec),
        **_callback(spec.abort_callback),
        **_array(spec.array),
        **_words("tags", spec.tags, most=TAGS, length=TAG_LENGTH),
        **_words("volumes", spec.volumes, most=VOLUMES, length=VOLUME_LENGTH),
        **_after([one.task for one in spec.after]),
    }
    refuse(problems)


def refuse(problems: Mapping[str, str]) -> None:
    """Raise BadInput where there are problems."""
    if problems:
        sentence = "; ".join(f"{field} {problem}" for field, problem in problems.items())
        raise BadInput(f"{sentence}.", fields=problems)


def check_can_start(spec: TaskSpec) -> None:
    """Check that a task has something to run; only a draft may lack it.

    Raises:
        BadInput: naming `command`.
    """
    if not spec.image and not spec.command:
        refuse({"command": "is missing: give a command, or an image that brings one"})


def request_texts(spec: TaskSpec, *, keys: frozenset[str] | None) -> dict[str, str]:
    """The request as it is stored.

    Raises:
        BadInput: naming `request.<key>`.
    """
    texts = quantities_text(spec.request, field="request", keys=keys)
    check_request(texts, field="request")
    return texts


def _texts(spec: TaskSpec) -> dict[str, str]:
    problems = {name: _text_problem(getattr(spec, name), most) for name, most in _LENGTHS.items()}
    return {name: problem for name, problem in problems.items() if problem}


def _text_problem(text: str, most: int) -> str:
    if len(text) > most:
        return f"has {len(text)} characters: at most {most}"
    return "" if text.isprintable() else "holds a character that cannot be printed"


def _name(spec: TaskSpec) -> dict[str, str]:
    return {} if spec.name.strip() else {"name": "is empty: give the task a name"}


def _secrets(spec: TaskSpec) -> dict[str, str]:
    """A secret reaches the container as a file, so it may have several lines."""
    secrets = spec.secrets
    if len(secrets) > SECRETS:
        return {"secrets": f"has {len(secrets)} entries: at most {SECRETS}"}
    total = 0
    for name, value in secrets.items():
        if not is_variable(name):
            return no_variable("secrets", name)
        size, problem = text_size(value, most=VARIABLE_BYTES)
        if value == HIDDEN:
            problem = "marks a hidden value: give the value itself"
        elif {name, f"{name}_FILE"} & spec.environment.keys():
            problem = "is in environment as well, itself or with _FILE behind: choose one name"
        if problem:
            return {f"secrets.{name}": problem}
        total += size
    if total > SECRETS_BYTES:
        return {"secrets": f"has {total} bytes: at most {SECRETS_BYTES} in all"}
    return {}


def _numbers(spec: TaskSpec) -> dict[str, str]:
    return {
        name: f"is {value}: it must lie between {low} and {high}"
        for name, (low, high) in _BOUNDS.items()
        if (value := getattr(spec, name)) is not None and not low <= value <= high
    }


def _callback(callback: AbortCallback | None) -> dict[str, str]:
    if callback is None:
        return {}
    _, problem = text_size(callback.script, most=SCRIPT_BYTES)
    if not problem and not callback.script.strip():
        problem = "is empty"
    if problem:
        return {"abort_callback.script": problem}
    if not 1 <= callback.timeout_s <= CALLBACK_S:
        return {"abort_callback.timeout_s": f"must lie between 1 and {CALLBACK_S}"}
    return {}


def _array(array: ArraySpec | None) -> dict[str, str]:
    if array is None:
        return {}
    return {
        f"array.{name}": f"is {value}: it must lie between 1 and {ARRAY}"
        for name, value in (("size", array.size), ("limit", array.limit))
        if value is not None and not 1 <= value <= ARRAY
    }


def _words(field: str, words: list[str], *, most: int, length: int) -> dict[str, str]:
    if len(words) > most:
        return {field: f"has {len(words)} entries: at most {most}"}
    for index, word in enumerate(words):
        if not word or len(word) > length or not word.isprintable():
            return {f"{field}.{index}": f"must have 1 to {length} printable characters"}
        if word in words[:index]:
            return {f"{field}.{index}": f"names {word!r} twice"}
    return {}


def _after(tasks: list[UUID]) -> dict[str, str]:
    if len(tasks) > AFTER:
        return {"after": f"has {len(tasks)} entries: at most {AFTER}"}
    return {
        f"after.{at}.task": "is named twice" for at, task in enumerate(tasks) if task in tasks[:at]
    }
