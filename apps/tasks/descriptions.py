"""Task descriptions, read from JSON and checked field by field; pure.

The limits on commands and variables are those of the kernel and of the container runtimes: the
node checks the same again.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from apps.core.containers import (
    VARIABLE_BYTES,
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
from apps.core.suggestions import nearest
from apps.core.units import check_request, quantities_text

NAME_LENGTH = 200
SECRETS = 64
SECRETS_BYTES = 256 * 1024
SCRIPT_BYTES = 64 * 1024
TAGS = 50
TAG_LENGTH = 100
VOLUMES = 64
REPLICAS = 4096
RETRIES = 100
PRIORITY = 1000
YEAR_S = 366 * 86_400
DAY_S = 86_400

_AT = re.compile(r" - at `(key in )?\$\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_TYPES = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "text",
}

Amounts = dict[str, int | float | str] | int | float | str | None


class AbortCallback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A script run inside the container when the task is being stopped, before SIGTERM."""

    script: str
    language: Literal["bash", "python"] = "bash"
    timeout_s: int = 60


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task as its owner describes it; `queue` is a name or an id, None for a draft.

    `image` is qualified, unless it is none that could be.
    """

    name: str
    queue: str | int | None = None
    image: str = ""
    command: list[str] = []
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}
    working_dir: str = ""
    request: Amounts = None
    replicas: int | None = None
    volumes: list[str] = []
    priority: int = 0
    is_preemptible: bool = True
    is_restartable: bool = True
    time_limit_s: int | None = None
    retries: int = 0
    checkpoint_volume: str = ""
    abort_callback: AbortCallback | None = None
    tags: list[str] = []

    def __post_init__(self) -> None:
        if self.image and not image_problems(self.image):
            msgspec.structs.force_setattr(self, "image", str(ImageName.parse(self.image)))


FIELDS = Description.__struct_fields__
# What a change of a draft may name; the queue is chosen when it is enqueued.
CHANGEABLE = tuple(name for name in FIELDS if name != "queue")

_decoder = msgspec.json.Decoder(Description)


def read_description(body: bytes | msgspec.Raw) -> Description:
    """A description from JSON, checked.

    Raises:
        BadInput: one entry of `fields` per thing that is wrong; only the first where it is not
            even of the right type.
    """
    try:
        description = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise type_error(str(error), FIELDS) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(str(error), body=bytes(body)) from error
    check(description)
    return description


def description_of(values: Mapping[str, Any]) -> Description:
    """A checked description from plain values, such as those of forms and changes.

    Raises:
        BadInput: as `read_description`.
    """
    try:
        description = msgspec.convert(dict(values), Description)
    except msgspec.ValidationError as error:
        raise type_error(str(error), FIELDS) from error
    check(description)
    return description


def type_error(message: str, fields: tuple[str, ...]) -> BadInput:
    """The error of msgspec, with the field in our notation and in words."""
    at = _AT.search(message)
    path = re.sub(r"\[(\d+)\]", r".\1", at["path"]).strip(".") if at else ""
    text = _AT.sub("", message)
    unknown, missing = _UNKNOWN.search(text), _MISSING.search(text)
    if unknown:
        known = AbortCallback.__struct_fields__ if path else fields
        near = nearest(unknown["name"], known)
        path = f"{path}.{unknown['name']}".strip(".")
        problem = f"is not a known field; did you mean {near!r}?"
    elif missing:
        path = f"{path}.{missing['name']}".strip(".")
        problem = "is missing"
    else:
        problem = _in_words(text)
    field = (path or "body").replace("[...]", "").rstrip(".")
    return BadInput(f"{field} {problem.rstrip('.')}.", fields={field: problem})


def check(description: Description) -> None:
    """Check everything that does not depend on a queue.

    Raises:
        BadInput: one entry of `fields` per bad field.
    """
    problems = {
        **_name(description),
        **image_problems(description.image),
        **command_problems(description.command),
        **environment_problems(description.environment),
        **_secrets(description),
        **working_dir_problems(description.working_dir),
        **_numbers(description),
        **_callback(description.abort_callback),
        **_words("tags", description.tags, most=TAGS, length=TAG_LENGTH),
        **_words("volumes", description.volumes, most=VOLUMES, length=63),
        **_checkpoint_volume(description.checkpoint_volume),
    }
    refuse(problems)


def refuse(problems: Mapping[str, str]) -> None:
    """Raise BadInput where there are problems."""
    if problems:
        sentence = "; ".join(f"{field} {problem}" for field, problem in problems.items())
        raise BadInput(f"{sentence}.", fields=problems)


def check_can_start(description: Description) -> None:
    """Check that a task has something to run; only a draft may lack it.

    Raises:
        BadInput: naming `command`.
    """
    if not description.image and not description.command:
        refuse({"command": "is missing: give a command, or an image that brings one"})


def request_texts(description: Description, *, keys: frozenset[str] | None) -> dict[str, str]:
    """The request as it is stored.

    Raises:
        BadInput: naming `request.<key>`.
    """
    texts = quantities_text(description.request, field="request", keys=keys)
    check_request(texts, field="request")
    return texts


def _in_words(text: str) -> str:
    expected = _EXPECTED.fullmatch(text)
    if expected is None:
        return text[:1].lower() + text[1:]
    wanted = [_TYPES.get(word.strip(), word.strip()) for word in expected["wanted"].split("|")]
    got = _TYPES.get(expected["got"], expected["got"])
    return f"must be {' or '.join(wanted)}, not {got}"


def _name(description: Description) -> dict[str, str]:
    name = description.name
    if not name.strip():
        return {"name": "is empty: give the task a name"}
    if len(name) > NAME_LENGTH:
        return {"name": f"has {len(name)} characters: at most {NAME_LENGTH}"}
    if not name.isprintable():
        return {"name": "holds a character that cannot be printed"}
    return {}


def _secrets(description: Description) -> dict[str, str]:
    """A secret reaches the container as a file, so it may have several lines."""
    secrets = description.secrets
    if len(secrets) > SECRETS:
        return {"secrets": f"has {len(secrets)} entries: at most {SECRETS}"}
    total = 0
    for name, value in secrets.items():
        if not is_variable(name):
            return no_variable("secrets", name)
        size, problem = text_size(value, most=VARIABLE_BYTES)
        if value == HIDDEN:
            problem = "marks a hidden value: give the value itself"
        elif {name, f"{name}_FILE"} & description.environment.keys():
            problem = "is in environment as well, itself or with _FILE behind: choose one name"
        if problem:
            return {f"secrets.{name}": problem}
        total += size
    if total > SECRETS_BYTES:
        return {"secrets": f"has {total} bytes: at most {SECRETS_BYTES} in all"}
    return {}


def _numbers(description: Description) -> dict[str, str]:
    bounds: tuple[tuple[str, int | None, int, int], ...] = (
        ("priority", description.priority, -PRIORITY, PRIORITY),
        ("replicas", description.replicas, 1, REPLICAS),
        ("time_limit_s", description.time_limit_s, 1, YEAR_S),
        ("retries", description.retries, 0, RETRIES),
    )
    return {
        name: f"is {value}: it must lie between {low} and {high}"
        for name, value, low, high in bounds
        if value is not None and not low <= value <= high
    }


def _callback(callback: AbortCallback | None) -> dict[str, str]:
    if callback is None:
        return {}
    _, problem = text_size(callback.script, most=SCRIPT_BYTES)
    if not problem and not callback.script.strip():
        problem = "is empty"
    if problem:
        return {"abort_callback.script": problem}
    if not 1 <= callback.timeout_s <= DAY_S:
        return {"abort_callback.timeout_s": f"must lie between 1 and {DAY_S}"}
    return {}


def _checkpoint_volume(name: str) -> dict[str, str]:
    if len(name) > 63 or not name.isprintable():
        return {"checkpoint_volume": "must have at most 63 printable characters"}
    return {}


def _words(field: str, words: list[str], *, most: int, length: int) -> dict[str, str]:
    if len(words) > most:
        return {field: f"has {len(words)} entries: at most {most}"}
    for index, word in enumerate(words):
        if not word or len(word) > length or not word.isprintable():
            return {f"{field}.{index}": f"must have 1 to {length} printable characters"}
        if word in words[:index]:
            return {f"{field}.{index}": f"names {word!r} twice"}
    return {}
