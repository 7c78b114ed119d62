"""The keys of a vault: `environment`, `container`, `secrets`, and all others; pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from apps.core.containers import (
    VARIABLE_BYTES,
    command_problems,
    environment_problems,
    is_variable,
    no_variable,
    text_size,
    working_dir_problems,
)
from apps.core.images import image_problems
from apps.core.keyring import HIDDEN
from apps.core.suggestions import did_you_mean
from apps.vaults.text.bounds import SECRETS, BadText, ParsedText, bad_text
from apps.vaults.text.reader import read

ENVIRONMENT: Final = "environment"
CONTAINER: Final = "container"
# Fields that a task may set itself; a vault sets them for tasks that do not.
CONTAINER_FIELDS: Final = ("image", "command", "working_dir")
OWN_KEYS: Final = (ENVIRONMENT, CONTAINER, SECRETS)
MOST_SECRETS: Final = 64
# The file of all other keys reaches the task as a secret of this name; RPM_VAULT_FILE names it.
FILE_NAME: Final = "RPM_VAULT"


def read_valid(text: str, *, format: str) -> ParsedText:  # noqa: A002  # the field's own name
    """The data of a valid text of a vault.

    Raises:
        BadText: naming line and column, and the key where it is one of ours.
    """
    found = read(text, format=format)
    for path, problem in _problems(found.data):
        words = f"{'.'.join(path)} {problem}"
        at = found.places.get(path[:2], found.places.get(path[:1]))
        raise BadText(words) if at is None else bad_text(text, at, words)
    return found


def environment_of(data: Mapping[str, Any]) -> dict[str, str]:
    """The variables, as texts."""
    return {name: variable_text(value) or "" for name, value in data.get(ENVIRONMENT, {}).items()}


def variable_text(value: object) -> str | None:
    """A value as a variable holds it; None where it cannot.

    Numbers with a point are refused: 1.10 would become 1.1.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    return None


def rest_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data that reaches the task as a file."""
    return {key: value for key, value in data.items() if key not in OWN_KEYS}


Problem = tuple[tuple[str, ...], str]


def _problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    for key in OWN_KEYS:
        if key in data and not isinstance(data[key], Mapping):
            yield (key,), "must be a mapping of names to values"
            return
    yield from _environment(data.get(ENVIRONMENT, {}))
    yield from _container(data.get(CONTAINER, {}))
    yield from _secrets(data.get(SECRETS, {}), data.get(ENVIRONMENT, {}))


def _environment(given: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in given.items():
        if variable_text(value) is None:
            yield (ENVIRONMENT, name), "must be text, a whole number, true or false: use quotes"
            return
    texts = {name: variable_text(value) or "" for name, value in given.items()}
    yield from _split(environment_problems(texts, field=ENVIRONMENT))


def _container(given: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in given.items():
        if name not in CONTAINER_FIELDS:
            yield (CONTAINER, name), f"is not known{did_you_mean(name, CONTAINER_FIELDS)}"
        elif name == "command":
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                yield (CONTAINER, name), "must be a list of texts: the program and its arguments"
            else:
                yield from _split(command_problems(value, field=f"{CONTAINER}.command"))
        elif not isinstance(value, str):
            yield (CONTAINER, name), "must be text"
        elif name == "image":
            yield from _split(image_problems(value, field=f"{CONTAINER}.image"))
        else:
            yield from _split(working_dir_problems(value, field=f"{CONTAINER}.working_dir"))


def _secrets(given: Mapping[str, Any], environment: Mapping[str, Any]) -> Iterator[Problem]:
    if len(given) > MOST_SECRETS:
        yield (SECRETS,), f"has {len(given)} entries: at most {MOST_SECRETS}"
    for name, value in given.items():
        if not is_variable(name):
            yield from _split(no_variable(SECRETS, name))
        elif name == FILE_NAME:
            yield (SECRETS, name), "is the name of the file of this vault: choose another one"
        elif {name, f"{name}_FILE"} & environment.keys():
            yield (SECRETS, name), "is in environment as well, itself or with _FILE behind"
        elif not isinstance(value, str):
            yield (SECRETS, name), "must be one text: put it into quotes"
        elif problem := text_size(value, most=VARIABLE_BYTES)[1]:
            yield (SECRETS, name), problem


def hidden_names(data: Mapping[str, Any]) -> list[str]:
    """Secrets for which the text holds only stars."""
    return [name for name, value in data.get(SECRETS, {}).items() if value == HIDDEN]


def _split(problems: Mapping[str, str]) -> Iterator[Problem]:
    for field, problem in problems.items():
        yield tuple(field.split(".", 2)), problem
