"""From a text in any of the formats to its data, and its secrets hidden or put back."""

import json
from collections.abc import Mapping
from typing import Any, Final

from apps.core.keyring import HIDDEN
from apps.vaults.text.hocon import read_hocon
from apps.vaults.text.json_text import read_json
from apps.vaults.text.shapes import BadText, ReadText, bad_text
from apps.vaults.text.yaml_text import read_yaml

READERS: Final = {"hocon": read_hocon, "json": read_json, "yaml": read_yaml}


def read(
    text: str,
    *,
    format: str,  # noqa: A002  # the field's own name
    is_stored: bool = False,
) -> ReadText:
    """The data of a text.

    Args:
        is_stored: it was taken before, perhaps when a text could have more substitutions.

    Raises:
        BadText: naming line and column.
    """
    if is_stored and format == "hocon":
        return read_hocon(text, is_stored=True)
    return READERS[format](text)


def with_hidden(text: str, found: ReadText) -> str:
    """The text as people read it: in the place of each secret stand stars."""
    return _replaced(text, found, dict.fromkeys((span.name for span in found.spans), HIDDEN))


def with_stored(text: str, found: ReadText, stored: Mapping[str, str]) -> str:
    """The text with what is stored in the place of stars.

    Raises:
        BadText: stars stand for a secret of which nothing is stored.
    """
    given = found.data.get("secrets") or {}
    kept = {span.name for span in found.spans if given.get(span.name) == HIDDEN}
    for span in found.spans:
        if span.name in kept and span.name not in stored:
            problem = f"secrets.{span.name} is the sign for a hidden value: give the value itself"
            raise bad_text(text, span.start, problem)
    return _replaced(text, found, {name: stored[name] for name in kept})


def stored_secrets(data: Mapping[str, Any]) -> dict[str, str]:
    """The secrets in the data of a text that was checked."""
    return dict(data.get("secrets") or {})


def data_text(data: Mapping[str, Any]) -> str:
    """The data as it is stored next to the text, so that nobody has to read that again."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _replaced(text: str, found: ReadText, values: Mapping[str, str]) -> str:
    """In quotes of JSON, which all three formats read."""
    for span in sorted(found.spans, key=lambda span: span.start, reverse=True):
        if span.name in values:
            quoted = json.dumps(values[span.name], ensure_ascii=False)
            text = text[: span.start] + quoted + text[span.end :]
    return text


__all__ = [
    "READERS",
    "BadText",
    "data_text",
    "read",
    "stored_secrets",
    "with_hidden",
    "with_stored",
]
