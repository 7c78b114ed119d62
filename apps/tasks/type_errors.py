"""Errors of msgspec as errors of RPM: the field in our notation, and words for what is wrong."""

import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from apps.core.errors import BadInput
from apps.core.suggestions import did_you_mean

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


def type_error(message: str, fields: tuple[str, ...], *, struct: type[msgspec.Struct]) -> BadInput:
    """The error of msgspec, with the field in our notation and in words.

    Args:
        fields: the known ones, as suggestions for an unknown one.
        struct: what was read; its types name the allowed values.
    """
    at = _AT.search(message)
    path = re.sub(r"\[(\d+)\]", r".\1", at["path"]).strip(".") if at else ""
    text = _AT.sub("", message)
    unknown, missing = _UNKNOWN.search(text), _MISSING.search(text)
    if unknown:
        inner = _struct_at(struct, path) if path else None
        known = inner.__struct_fields__ if inner else fields
        path = f"{path}.{unknown['name']}".strip(".")
        problem = f"is not a known field{did_you_mean(unknown['name'], known)}"
    elif missing:
        path = f"{path}.{missing['name']}".strip(".")
        problem = "is missing"
    else:
        problem = _in_words(text)
    allowed = ", ".join([] if unknown else _allowed_values(struct, path))
    if allowed:
        problem = f"is missing: give one of {allowed}" if missing else f"must be one of {allowed}"
    field = (path or "body").replace("[...]", "").rstrip(".")
    return BadInput(f"{field} {problem.rstrip('.')}.", fields={field: problem})


def _in_words(text: str) -> str:
    if text == "Invalid UUID":
        return "must be the id of a task"
    expected = _EXPECTED.fullmatch(text)
    if expected is None:
        return text[:1].lower() + text[1:]
    wanted = [_TYPES.get(word.strip(), word.strip()) for word in expected["wanted"].split("|")]
    got = _TYPES.get(expected["got"], expected["got"])
    return f"must be {' or '.join(wanted)}, not {got}"


def _allowed_values(struct: type[msgspec.Struct], path: str) -> list[str]:
    """The values of a field that takes only a few; empty for any other."""
    hint = _hint_at(struct, path)
    return list(get_args(hint)) if get_origin(hint) is Literal else []


def _hint_at(struct: type[msgspec.Struct], path: str) -> Any:
    """The type of what stands at a path; an entry of a list has the type of its list."""
    hint: Any = struct
    for name in path.split("."):
        if not name.isdigit():
            inner = _struct_in(hint)
            hint = get_type_hints(inner).get(name) if inner else None
    return hint


def _struct_at(struct: type[msgspec.Struct], path: str) -> type[msgspec.Struct] | None:
    return _struct_in(_hint_at(struct, path))


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    return next((one for one in (hint, *get_args(hint)) if hasattr(one, "__struct_fields__")), None)
