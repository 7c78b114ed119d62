"""Limits of the kernel and of the runtimes on what a container is started with; pure.

Each `..._problems` answers problems per field, empty where there is none. The node checks the same
again (`apps/execution/node/request_fields.py`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

PATH_LENGTH = 500
ARGUMENTS = 4096
# The kernel's MAX_ARG_STRLEN is 128 KiB with the final NUL.
ARGUMENT_BYTES = 128 * 1024 - 1
COMMAND_BYTES = 1024 * 1024
# A node takes 1,024 with those that RPM adds (apps/execution/container_specs.py).
VARIABLES = 1000
# The runtimes read variables with a scanner that stops at lines of 64 KiB.
VARIABLE_BYTES = 60 * 1024
ENVIRONMENT_BYTES = 1024 * 1024
# Their entries lead out of a container, such as the open files of its starting process.
KERNEL_FOLDERS = frozenset({"dev", "proc", "sys"})

# How long a script may run before SIGTERM.
CALLBACK_S = 86_400

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


class AbortCallback(Struct, frozen=True, forbid_unknown_fields=True):
    """A script run inside the container when the task is being stopped, before SIGTERM."""

    script: str
    language: Literal["bash", "python"] = "bash"
    timeout_s: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": CALLBACK_S})] = 60


def command_problems(command: Sequence[str], *, field: str = "command") -> dict[str, str]:
    """Program and arguments."""
    if len(command) > ARGUMENTS:
        return {field: f"has {len(command)} arguments: at most {ARGUMENTS}"}
    total = 0
    for index, argument in enumerate(command):
        size, problem = text_size(argument, most=ARGUMENT_BYTES)
        if problem:
            return {f"{field}.{index}": problem}
        total += size
    if total > COMMAND_BYTES:
        return {field: f"has {total} bytes: at most {COMMAND_BYTES} in all"}
    if command and not command[0]:
        return {f"{field}.0": "is empty: it names the program"}
    return {}


def environment_problems(
    environment: Mapping[str, str], *, field: str = "environment"
) -> dict[str, str]:
    """Variables; a line break would add another one."""
    if len(environment) > VARIABLES:
        return {field: f"has {len(environment)} variables: at most {VARIABLES}"}
    total = 0
    for name, value in environment.items():
        if not is_variable(name):
            return no_variable(field, name)
        size, problem = text_size(value, most=VARIABLE_BYTES)
        if not problem and ("\n" in value or "\r" in value):
            problem = "holds a line break, which a variable cannot"
        if problem:
            return {f"{field}.{name}": problem}
        total += size + len(name)
    if total > ENVIRONMENT_BYTES:
        return {field: f"has {total} bytes: at most {ENVIRONMENT_BYTES} in all"}
    return {}


def working_dir_problems(path: str, *, field: str = "working_dir") -> dict[str, str]:
    """Where the program starts; empty is where the image says."""
    if not path:
        return {}
    parts = path.split("/")
    is_plain = "." not in parts and ".." not in parts and "//" not in path
    is_safe = not any(letter in ',:"\\' or not letter.isprintable() for letter in path)
    if not path.startswith("/") or not is_plain or not is_safe or len(path) > PATH_LENGTH:
        return {
            field: "must be an absolute path such as /work, without '.', '..', comma, "
            f"colon, quote or backslash, of at most {PATH_LENGTH} characters"
        }
    if parts[1] in KERNEL_FOLDERS:
        return {field: "is in /proc, /sys or /dev, the kernel's own: choose another folder"}
    return {}


def is_variable(name: str) -> bool:
    """Whether a variable can have this name."""
    return bool(_VARIABLE.fullmatch(name))


def no_variable(field: str, name: str) -> dict[str, str]:
    """The problem of a name that no variable can have."""
    shown = name[:80].encode("ascii", "backslashreplace").decode().replace("\0", "\\0")
    return {
        f"{field}.{shown}": "is no name of a variable: use letters, digits and underscores, and "
        "begin with a letter or underscore"
    }


def text_size(text: str, *, most: int) -> tuple[int, str]:
    """Bytes of a text, and what is wrong with it (empty: nothing)."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return 0, "holds half of a surrogate pair"
    if "\0" in text:
        return 0, "holds a NUL character"
    if size > most:
        return size, f"has {size} bytes: at most {most}"
    return size, ""
