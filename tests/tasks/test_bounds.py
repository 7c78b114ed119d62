"""Descriptions at their bounds, and one above."""

from typing import Any, get_type_hints
from uuid import UUID

import pytest

from apps.core.containers import (
    ARGUMENT_BYTES,
    ARGUMENTS,
    COMMAND_BYTES,
    ENVIRONMENT_BYTES,
    VARIABLE_BYTES,
    VARIABLES,
)
from apps.core.errors import BadInput
from apps.tasks.task_spec import (
    AFTER,
    ARRAY,
    NAME_LENGTH,
    REPLICAS,
    RETRIES,
    SCRIPT_BYTES,
    SECRETS,
    SECRETS_BYTES,
    TAG_LENGTH,
    TAGS,
    VOLUME_LENGTH,
    VOLUMES,
    TaskSpec,
    spec_of,
)


def numbered(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def others(count: int) -> list[dict[str, str]]:
    return [{"task": str(UUID(int=number))} for number in range(count)]


def secrets(total: int) -> dict[str, str]:
    """Six secrets, together of so many bytes."""
    size, rest = divmod(total, 6)
    return {f"S{number}": "x" * (size + (rest if number == 0 else 0)) for number in range(6)}


def arguments(total: int) -> list[str]:
    size, rest = divmod(total, 16)
    return ["x" * (size + (rest if number == 0 else 0)) for number in range(16)]


def variables(total: int) -> dict[str, str]:
    """Of so many bytes with their names, which have three each."""
    size, rest = divmod(total, 64)
    return {
        f"A{number:02}": "x" * (size - 3 + (rest if number == 0 else 0)) for number in range(64)
    }


@pytest.mark.parametrize(
    ("field", "at_bound", "above"),
    [
        ("name", "x" * NAME_LENGTH, "x" * (NAME_LENGTH + 1)),
        (
            "secrets",
            {f"S{n}": "x" for n in range(SECRETS)},
            {f"S{n}": "x" for n in range(SECRETS + 1)},
        ),
        ("secrets", secrets(SECRETS_BYTES), secrets(SECRETS_BYTES + 1)),
        (
            "abort_callback",
            {"script": "x" * SCRIPT_BYTES},
            {"script": "x" * (SCRIPT_BYTES + 1)},
        ),
        ("array", {"size": ARRAY}, {"size": ARRAY + 1}),
        ("tags", numbered(TAGS), numbered(TAGS + 1)),
        ("tags", ["x" * TAG_LENGTH], ["x" * (TAG_LENGTH + 1)]),
        ("volumes", numbered(VOLUMES), numbered(VOLUMES + 1)),
        ("after", others(AFTER), others(AFTER + 1)),
        ("checkpoint_volume", "x" * VOLUME_LENGTH, "x" * (VOLUME_LENGTH + 1)),
        ("replicas", REPLICAS, REPLICAS + 1),
        ("retries", RETRIES, RETRIES + 1),
        ("command", numbered(ARGUMENTS), numbered(ARGUMENTS + 1)),
        (
            "environment",
            dict.fromkeys(numbered(VARIABLES), ""),
            dict.fromkeys(numbered(VARIABLES + 1), ""),
        ),
        ("command", arguments(COMMAND_BYTES), arguments(COMMAND_BYTES + 1)),
        ("command", ["x" * ARGUMENT_BYTES], ["x" * (ARGUMENT_BYTES + 1)]),
        ("environment", {"A": "x" * VARIABLE_BYTES}, {"A": "x" * (VARIABLE_BYTES + 1)}),
        ("environment", variables(ENVIRONMENT_BYTES), variables(ENVIRONMENT_BYTES + 1)),
    ],
)
def test_a_description_is_taken_at_each_bound_and_not_above(
    field: str, at_bound: Any, above: Any
) -> None:
    described = {"name": "t", "command": ["true"]}

    assert spec_of(described | {field: at_bound}).name
    with pytest.raises(BadInput) as refused:
        spec_of(described | {field: above})

    assert {name.partition(".")[0] for name in refused.value.fields} == {field}


TEXTS = [name for name, hint in get_type_hints(TaskSpec).items() if hint is str]


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("text", ["a\0b", "a\nb"], ids=["NUL", "a line break"])
def test_every_text_is_refused_with_a_character_that_cannot_be_printed(
    field: str, text: str
) -> None:
    # PostgreSQL stores no NUL.
    with pytest.raises(BadInput) as refused:
        spec_of({"name": "t", "command": ["true"], field: text})

    assert set(refused.value.fields) == {field}
