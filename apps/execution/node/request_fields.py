"""Reads fields out of a request, each by a grammar. Whatever does not fit refuses the request.

The control plane checks what it sends; the node checks again, because it runs with more rights
than the task's owner has.
"""

from __future__ import annotations

import re
from typing import Any

from apps.execution.node.errors import RequestRefusal

IDENTIFIER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?")
# registry/repository:tag or registry/repository@digest, in full, as the control plane qualifies it
# (`apps/core/images.py`). The runtimes take anything shorter for any image of the node that ends
# so, numbers for images, and `dir:/etc` for files of the node.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
IMAGE = re.compile(
    r"(?=localhost/|[^/]*[.:][^/]*/)(?!index\.docker\.io/|docker\.io/[^/]*\Z)"
    + r"%s(?:\.%s)*(?::[0-9]{1,5})?" % (_LABEL, _LABEL)
    + r"(?:/%s)+" % _PART
    + r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})"
)
IMAGE_LENGTH = 500
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
CDI_NAME = re.compile(
    r"[A-Za-z][A-Za-z0-9.-]{0,127}/[A-Za-z][A-Za-z0-9_-]{0,63}=[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
)
# Where the runtimes mount what isolates the container, and its secrets.
KERNELS_OWN = ("/dev", "/proc", "/sys")
RUNTIMES_OWN = (*KERNELS_OWN, "/run/secrets")
CAPABILITY = re.compile(r"[A-Z][A-Z_]{2,30}")
DEVICE_PATH = re.compile(r"/dev(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){1,4}")
# What `serials` keeps: a SHA-256 in hex; empty where the control plane is of an earlier release.
SIGNATURE = re.compile(r"(?:[0-9a-f]{64})?")
# Of one run of a puller, as it answered; empty in a request that asks for none in particular.
PULL_ID = re.compile(r"(?:[0-9a-f]{16})?")
DEVICE_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")

# The kernel's MAX_ARG_STRLEN is 128 KiB with the final NUL.
ARGUMENT_BYTES = 128 * 1024 - 1
COMMAND_BYTES = 1024 * 1024
# The runtimes read an environment file with a scanner that stops at lines of 64 KiB.
VARIABLE_BYTES = 60 * 1024
# podman keeps no longer secret.
SECRET_BYTES = 512_000 - 1


def refuse(field: str, reason: str) -> RequestRefusal:
    """The refusal of one field, in the words that the user will read."""
    return RequestRefusal("invalid", "%s: %s" % (field, reason))


def text(request: dict[str, Any], field: str, grammar: re.Pattern[str]) -> str:
    """A required string that matches the grammar as a whole."""
    value = request.get(field)
    if not isinstance(value, str) or not grammar.fullmatch(value):
        raise refuse(field, "%.80r is not allowed here" % (value,))
    return value


def texts(request: dict[str, Any], field: str, grammar: re.Pattern[str]) -> tuple[str, ...]:
    """A list of strings of which each matches the grammar as a whole, empty when missing."""
    value = request.get(field, [])
    if not isinstance(value, list) or len(value) > 64:
        raise refuse(field, "not a list of at most 64 strings")
    return tuple(text({field: item}, field, grammar) for item in value)


def whole(request: dict[str, Any], field: str, *, lowest: int, highest: int) -> int:
    """A required whole number within bounds."""
    value = request.get(field)
    if type(value) is not int or not lowest <= value <= highest:
        raise refuse(field, "%.80r is not a whole number %d..%d" % (value, lowest, highest))
    return value


def number(request: dict[str, Any], field: str, *, highest: float) -> float:
    """A required number from 0 to `highest`; not-a-number is refused by the comparison."""
    value = request.get(field)
    if type(value) not in (int, float) or not 0 <= value <= highest:  # type: ignore[operator]  # the type is checked just before
        raise refuse(field, "%.80r is not a number 0..%g" % (value, highest))
    return float(value)  # type: ignore[arg-type]  # checked above


def flag(request: dict[str, Any], field: str) -> bool:
    """A required boolean."""
    value = request.get(field)
    if not isinstance(value, bool):
        raise refuse(field, "%.80r is not true or false" % (value,))
    return value


def record(request: dict[str, Any], field: str) -> dict[str, Any]:
    """A required object."""
    value = request.get(field)
    if not isinstance(value, dict):
        raise refuse(field, "not an object")
    return value


def records(request: dict[str, Any], field: str, *, most: int) -> list[dict[str, Any]]:
    """A list of objects, empty when missing."""
    value = request.get(field, [])
    if not isinstance(value, list) or len(value) > most:
        raise refuse(field, "not a list of at most %d objects" % most)
    if not all(isinstance(item, dict) for item in value):
        raise refuse(field, "not a list of objects")
    return value


def image(request: dict[str, Any], field: str = "image") -> str:
    """The name of an image in full, whose meaning does not hang on what the node has."""
    name = text(request, field, IMAGE)
    if len(name) > IMAGE_LENGTH:
        raise refuse(field, "longer than %d characters" % IMAGE_LENGTH)
    return name


def path(request: dict[str, Any], field: str) -> str:
    """An absolute path in its plain form, safe as a value of `--mount` and `--workdir`."""
    value = request.get(field)
    if not isinstance(value, str) or not value.startswith("/") or len(value) > 1024:
        raise refuse(field, "%.80r is not an absolute path" % (value,))
    if any(part in (".", "..") for part in value.split("/")) or "//" in value:
        raise refuse(field, "%.80r is not in its plain form" % (value,))
    # A comma would add an option to --mount, a colon one to --volume, a quote reads as CSV.
    if any(letter in ',:"\\' or not letter.isprintable() for letter in value):
        raise refuse(field, "%.80r holds a character that is not allowed in a path" % (value,))
    # A name of more than 255 bytes exists nowhere (NAME_MAX).
    if any(len(part.encode()) > 255 for part in value.split("/")):
        raise refuse(field, "%.80r has a part of more than 255 bytes" % (value,))
    return value


def working_dir(request: dict[str, Any], field: str) -> str:
    """Where a program starts; the kernel's own folders would lead out of a container."""
    value = path(request, field)
    if any(("%s/" % value).startswith("%s/" % one) for one in KERNELS_OWN):
        raise refuse(field, "%.80r is the kernel's own" % (value,))
    return value


def target(request: dict[str, Any], field: str) -> str:
    """Where a volume is seen inside: a path that hides nothing the runtime puts there."""
    value = path(request, field)
    if value == "/" or any(("%s/" % value).startswith("%s/" % one) for one in RUNTIMES_OWN):
        raise refuse(field, "%.80r is the runtime's own" % (value,))
    return value


def command(request: dict[str, Any]) -> tuple[str, ...]:
    """The task's own arguments: any text that the kernel can pass on."""
    value = request.get("command", [])
    if not isinstance(value, list) or len(value) > 4096:
        raise refuse("command", "not a list of at most 4096 strings")
    total = 0
    for argument in value:
        total += len(_plain_bytes("command", argument, limit=ARGUMENT_BYTES))
    if total > COMMAND_BYTES:
        raise refuse("command", "longer than %d bytes in all" % COMMAND_BYTES)
    return tuple(value)


def variables(request: dict[str, Any], field: str) -> dict[str, str]:
    """Environment variables; a line break would add a variable, so it is refused."""
    value = secrets(request, field, most=VARIABLE_BYTES)
    for name, content in value.items():
        if "\n" in content or "\r" in content:
            raise refuse("%s.%s" % (field, name), "a line break is not possible in a variable")
    return value


def secrets(request: dict[str, Any], field: str, *, most: int = SECRET_BYTES) -> dict[str, str]:
    """Values by names of variables; in files of their own, so of several lines as well."""
    value = request.get(field, {})
    if not isinstance(value, dict) or len(value) > 1024:
        raise refuse(field, "not an object of at most 1024 variables")
    for name, content in value.items():
        if not ENVIRONMENT_NAME.fullmatch(name):
            raise refuse(field, "%.80r is not the name of a variable" % name)
        _plain_bytes("%s.%s" % (field, name), content, limit=most)
    return value


def _plain_bytes(field: str, value: object, *, limit: int) -> bytes:
    if not isinstance(value, str):
        raise refuse(field, "%.80r is not a string" % (value,))
    try:
        plain = value.encode()
    except UnicodeEncodeError:
        raise refuse(field, "holds half of a surrogate pair") from None
    if b"\0" in plain:
        raise refuse(field, "holds a NUL byte")
    if len(plain) > limit:
        raise refuse(field, "longer than %d bytes" % limit)
    return plain
