"""Reading of a text in any format, and hiding or restoring of its secrets."""

import json
from collections.abc import Mapping
from typing import Any, Final

from apps.core.keyring import HIDDEN
from apps.vaults.text.bounds import BadText, ParsedText, bad_text
from apps.vaults.text.hocon import read_hocon
from apps.vaults.text.json_text import read_json
from apps.vaults.text.yaml_text import read_yaml

READERS: Final = {"hocon": read_hocon, "json": read_json, "yaml": read_yaml}


def read(
    text: str,
    *,
    format: str,  # noqa: A002  # the field's own name
    is_stored: bool = False,
) -> ParsedText:
    """The data of a text.

    Args:
        is_stored: it was accepted before, perhaps when a text could have more substitutions.

    Raises:
        BadText: naming line and column.
    """
    if is_stored and format == "hocon":
        return read_hocon(text, is_stored=True)
    return READERS[format](text)


def hide_secrets(text: str, found: ParsedText) -> str:
    """The text for readers: with stars in place of each secret."""
    return _replaced(text, found, dict.fromkeys((span.name for span in found.spans), HIDDEN))


def put_back_secrets(text: str, found: ParsedText, stored: Mapping[str, str]) -> str:
    """The text with the stored secrets in place of stars.

    Raises:
        BadText: no secret is stored for some stars.
    """
    given = found.data.get("secrets") or {}
    kept = {span.name for span in found.spans if given.get(span.name) == HIDDEN}
    for span in found.spans:
        if span.name in kept and span.name not in stored:
            problem = f"secrets.{span.name} marks a hidden value: give the value itself"
            raise bad_text(text, span.start, problem)
    return _replaced(text, found, {name: stored[name] for name in kept})


def stored_secrets(data: Mapping[str, Any]) -> dict[str, str]:
    """The secrets in the data of a checked text."""
    return dict(data.get("secrets") or {})


def data_text(data: Mapping[str, Any]) -> str:
    """The data as it is stored next to the text, so that the text is not parsed again."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _replaced(text: str, found: ParsedText, values: Mapping[str, str]) -> str:
    """The value in JSON quotes, which all three formats read."""
    for span in sorted(found.spans, key=lambda span: span.start, reverse=True):
        if span.name in values:
            quoted = json.dumps(values[span.name], ensure_ascii=False)
            text = text[: span.start] + quoted + text[span.end :]
    return text


__all__ = [
    "READERS",
    "BadText",
    "data_text",
    "hide_secrets",
    "put_back_secrets",
    "read",
    "stored_secrets",
]
