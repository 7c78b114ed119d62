"""A strict reader of JSON: no duplicate keys, no NaN."""

import json
from collections import Counter
from typing import Any

from apps.vaults.text.bounds import BadText, ParsedText, bad_text, check_bounds, check_size
from apps.vaults.text.hocon import read_hocon


def read_json(text: str) -> ParsedText:
    """The data of a text in JSON.

    Raises:
        BadText: naming line and column.
    """
    check_size(text)
    try:
        data: Any = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise bad_text(text, error.pos, error.msg[:1].lower() + error.msg[1:]) from None
    except RecursionError:
        raise BadText("it is nested too deeply") from None
    except ValueError:
        # Python does not convert numbers of thousands of digits.
        raise BadText("it holds a number that is too long") from None
    if not isinstance(data, dict):
        raise BadText("it must be an object of keys and values", line=1, column=1)
    check_bounds(data)
    # JSON is HOCON, whose reader knows the places; both readers must agree.
    found = read_hocon(text)
    if found.data != data:
        raise BadText("it holds an ambiguous value")
    return ParsedText(data, found.spans, found.places)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise BadText(f"key {twice[:80]!r} occurs twice in one object")
    return data


def _no_number(word: str) -> None:
    raise BadText(f"{word} is no number of JSON")
