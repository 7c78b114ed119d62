"""Quantities as people write them, and as whole thousandths.

The only place where text becomes thousandths and thousandths become text. Inside, amounts are
integers: `gpu` 0.5 is 500. A share such as `1/7` is rounded down (142) and shown as typed.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from apps.core.errors import BadInput
from apps.core.suggestions import did_you_mean

BUILT_IN_KEYS = ("gpu", "cpu", "memory_mb", "slot")
# How amounts of the built-in keys are called in sentences; other keys are their own unit.
UNITS = {"gpu": "GPU", "cpu": "CPU", "memory_mb": "MB", "slot": "slots"}
MILLI = 1000
MB_IN_GB = 1024
# Keeps sums of 100,000 amounts within the signed 64 bits of a database column.
LARGEST_MILLI = 10**13

_DECIMAL = re.compile(r"[0-9]{1,13}(\.[0-9]+)?")
# A number with a unit, as ZenML and Kubernetes write them: `500m`, `500mcpu`, `16Gi`, `2GiB`.
_WITH_UNIT = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([A-Za-z][A-Za-z0-9_.-]{0,63})")
# Memory is counted in powers of 1024, whatever the spelling, as RPM shows it.
_BYTES = re.compile(r"([kmgtp])(?:ib|i|b)?", re.IGNORECASE)
_POWERS = {"k": -1, "m": 0, "g": 1, "t": 2, "p": 3}
MEMORY = "memory_mb"
_SHARE = re.compile(r"([0-9]{1,9})\s*/\s*([0-9]{1,9})")
_KEY = re.compile(r"[a-z][a-z0-9_.-]{0,62}")


def unit_of(key: str) -> str:
    """`GPU` for `gpu`."""
    return UNITS.get(key, key)


def quantity_text(value: object, *, field: str, key: str = "") -> str:
    """What a person gave for one amount, checked, as the text that is stored and shown.

    Args:
        value: an int, float, Decimal or str; `"1/7"` is a share, `"500m"` and `"16GiB"` have units.
        field: the name to blame in the error, e.g. `capacity.gpu`.
        key: the resource key, which decides on the units.

    Raises:
        BadInput: naming `field` and what would be right.
    """
    if isinstance(value, str):
        text = _without_unit(value.strip(), key, field=field)
    elif isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        text = _plain_number(value)
    else:
        raise _bad(field, "must be a number such as 4 or 0.5, or a share such as 1/7")
    milli = _parse(text, field=field)
    if milli > LARGEST_MILLI:
        raise _too_large(field)
    return text if "/" in text else milli_text(milli)


# Few different texts are stored, and pages read thousands of them.
@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """Thousandths of a stored text; shares are rounded down."""
    return _parse(text, field="amount")


def milli_text(amount: int) -> str:
    """Thousandths as the shortest decimal: 500 is `0.5`, 4000 is `4`."""
    whole, rest = divmod(abs(amount), MILLI)
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{rest:03d}".rstrip("0") if rest else f"{sign}{whole}"


def amount_text(key: str, amount: int) -> str:
    """Thousandths of `key` with its unit: 4000 of `gpu` is `4 GPU`; memory in GB from 1 GB on."""
    if key == MEMORY and amount >= MB_IN_GB * MILLI:
        # One decimal is enough for gigabytes.
        return f"{milli_text(amount // MB_IN_GB // 100 * 100)} GB"
    return f"{milli_text(amount)} {unit_of(key)}"


def amounts_text(texts: Mapping[str, str]) -> str:
    """Stored amounts in a line, the built-in keys first: `0.5 GPU · 16 GB`."""
    order = list(UNITS)
    keys = sorted(texts, key=lambda key: (order.index(key) if key in order else 99, key))
    return " · ".join(_as_typed(key, texts[key]) for key in keys)


def _as_typed(key: str, text: str) -> str:
    return f"{text} {unit_of(key)}" if "/" in text else amount_text(key, milli(text))


def quantities_text(value: object, *, field: str, keys: Iterable[str] | None) -> dict[str, str]:
    """A whole object of amounts per key, checked.

    Args:
        value: a mapping of key to amount; a bare number or text is short for `{"gpu": ...}`.
        field: the name to blame.
        keys: the known keys; None where new keys may be introduced (the capacity of a pool).

    Raises:
        BadInput: one entry of `fields` per bad key.
    """
    if isinstance(value, (int, float, Decimal, str)) and not isinstance(value, bool):
        value = {"gpu": value}
    if not isinstance(value, Mapping):
        raise _bad(field, 'must be an object of amounts such as {"gpu": 4}, or a number of GPUs')
    known = None if keys is None else sorted(set(keys) | set(BUILT_IN_KEYS))
    problems: dict[str, str] = {}
    texts: dict[str, str] = {}
    for key in sorted(value, key=str):
        name = f"{field}.{key}"
        try:
            _check_key(key, known, field=name)
            texts[key] = quantity_text(value[key], field=name, key=key)
        except BadInput as error:
            problems.update(error.fields)
    if problems:
        raise BadInput("; ".join(f"{k} {v}" for k, v in problems.items()) + ".", fields=problems)
    return texts


def quantities_milli(texts: Mapping[str, str]) -> dict[str, int]:
    """Thousandths per key of a stored object."""
    return {key: milli(text) for key, text in texts.items()}


def check_request(texts: Mapping[str, str], *, field: str) -> None:
    """A GPU request is a fraction below 1 or a whole number.

    Raises:
        BadInput: naming `field`.gpu.
    """
    gpu = milli(texts.get("gpu", "0"))
    if gpu > MILLI and gpu % MILLI:
        raise _bad(f"{field}.gpu", "must be a fraction below 1 or a whole number of GPUs")


def _check_key(key: object, known: list[str] | None, *, field: str) -> None:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise _bad(field, "is not a resource key: use small letters, digits, dot, dash, underscore")
    if known is None or key in known:
        return
    raise _bad(field, f"is not a known resource key{did_you_mean(key, known)}")


def _without_unit(text: str, key: str, *, field: str) -> str:
    """An amount with a unit as a plain number in the unit of `key`; other texts as they are."""
    found = _WITH_UNIT.fullmatch(text)
    if found is None:
        return text
    number, unit = Decimal(found[1]), found[2]
    if key == MEMORY:
        return _megabytes(number, unit, field=field)
    names = {key.lower(), unit_of(key).lower()}
    if unit.lower() in names:
        return format(number, "f")
    if unit == "m" or (unit[0] == "m" and unit[1:].lower() in names):
        return format(number / MILLI, "f")
    raise _bad(field, f"must be a number such as 4, 0.5 or 500m{_own_unit(key)}")


def _own_unit(key: str) -> str:
    return f", or with the unit {unit_of(key)}" if key else ""


def _megabytes(number: Decimal, unit: str, *, field: str) -> str:
    found = _BYTES.fullmatch(unit)
    if found is None or unit == "m":
        # In Kubernetes m is a thousandth of a byte, which nobody means.
        raise _bad(
            field, "must be a number of MB such as 4096, or with a unit such as 16GiB or 16Gi"
        )
    power = _POWERS[found[1].lower()]
    size = number * MB_IN_GB**power if power >= 0 else number / MB_IN_GB
    amount = int(size * MILLI)
    if amount > LARGEST_MILLI:
        raise _too_large(field)
    return milli_text(amount)


def _too_large(field: str) -> BadInput:
    return _bad(field, f"must be at most {LARGEST_MILLI // MILLI}")


def _parse(text: str, *, field: str) -> int:
    share = _SHARE.fullmatch(text)
    if share:
        if int(share[2]) == 0:
            raise _bad(field, "divides by zero")
        return int(share[1]) * MILLI // int(share[2])
    if text.startswith("-"):
        raise _bad(field, "must not be negative")
    match = _DECIMAL.fullmatch(text)
    if not match:
        raise _bad(field, "must be a number such as 4 or 0.5, or a share such as 1/7")
    places = (match[1] or ".")[1:].rstrip("0")
    if len(places) > 3:
        raise _bad(field, "has more than three decimal places")
    return int(Decimal(text) * MILLI)


def _plain_number(value: int | float | Decimal) -> str:
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return format(number, "f") if number.is_finite() else str(value)


def _bad(field: str, problem: str) -> BadInput:
    return BadInput(f"{field} {problem}.", fields={field: problem})


def as_json(value: Mapping[str, str] | None) -> dict[str, Any] | None:
    """Stored texts as they go out in JSON: unchanged, so that shares stay as typed."""
    return dict(value) if value is not None else None
