"""Python functions as tasks: the function travels in the command, its result in the log.

Both are bounded and checked. A result carries the mark of a key that only the task and its future
have; it is JSON unless the caller asks for pickle of its own task.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import zlib
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

# docs/bounds.md: bytes of one argument and of a command, less those of the runner.
PART_BYTES = 120_000
MOST_BYTES = 1_000_000
# Of what a function returns, as it stands in the log, of which a member has 10 MiB.
RESULT_BYTES = 4_000_000
KEY_NAME = "RESULT_KEY"
KINDS = ("json", "pickle")
_FRAME = re.compile(r"^::rpm-result (\w+) ([0-9a-f]{64}) ([A-Za-z0-9+/=]*)$", re.MULTILINE)
# Runs in the container: its Python, cloudpickle, and nothing of RPM.
_RUNNER = f"""\
import base64, hashlib, hmac, json, os, pickle, sys, traceback, zlib
kind = sys.argv[1]
def send(name, data):
    with open(os.environ["{KEY_NAME}_FILE"]) as file:
        key = file.read().strip().encode()
    text = base64.b64encode(zlib.compress(data)).decode()
    if len(text) > {RESULT_BYTES}:
        raise ValueError("The result takes %d bytes of the log, at most {RESULT_BYTES} can be "
            "returned: write it to a volume, and return its path." % len(text))
    mark = hmac.new(key, name.encode() + data, hashlib.sha256).hexdigest()
    sys.stderr.flush()
    sys.stdout.write("\\n::rpm-result %s %s %s\\n" % (name, mark, text))
    sys.stdout.flush()
try:
    function, args, kwargs = pickle.loads(zlib.decompress(base64.b64decode("".join(sys.argv[2:]))))
    value = function(*args, **kwargs)
    send(kind, json.dumps(value).encode() if kind == "json" else pickle.dumps(value))
except BaseException as error:
    text = traceback.format_exc()[-20000:]
    sys.stderr.write(text)
    send("error", json.dumps([type(error).__name__, str(error)[:2000], text]).encode())
    sys.exit(1)
"""


class TaskError(Exception):
    """A task did not bring its result; `traceback_text` is that of its function, if it raised."""

    def __init__(self, message: str, *, traceback_text: str = "") -> None:
        super().__init__(f"{message}\n\n{traceback_text}" if traceback_text else message)
        self.traceback_text = traceback_text


class ResultMissingError(TaskError):
    """The function did not come to its end, or its result is not whole."""


@dataclass(frozen=True)
class ResourceSettings:
    """What a task takes, in dynamic profiles, and whether others may preempt it.

    Args:
        memory: such as 16GiB, 16G or 512MiB; the server knows the units (docs/concepts.md).
    """

    gpu_count: float | None = None
    cpu_count: float | None = None
    memory: str | None = None
    preemptible: bool | None = None

    def fields(self) -> dict[str, Any]:
        """The fields of a task."""
        amounts = {"gpu": self.gpu_count, "cpu": self.cpu_count, "memory_mb": self.memory}
        request = {key: amount for key, amount in amounts.items() if amount is not None}
        fields: dict[str, Any] = {"request": request} if request else {}
        if self.preemptible is not None:
            fields["is_preemptible"] = self.preemptible
        return fields


@dataclass(frozen=True)
class FunctionCall:
    """The command that calls a function, and what the result is checked with."""

    command: list[str]
    kind: str
    key: str = field(repr=False)


def function_call(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, kind: str, python: str
) -> FunctionCall:
    """The command for a function and its arguments.

    Raises:
        ValueError: it is too large, or the kind of result is unknown.
        ImportError: cloudpickle is not installed.
    """
    if kind not in KINDS:
        raise ValueError(f"result is {kind!r}: give json or pickle.")
    try:
        cloudpickle = import_module("cloudpickle")
    except ImportError:
        raise ImportError(
            "Functions need cloudpickle: pip install 'rpmctl[submit]', and have it in the image."
        ) from None
    sent = base64.b64encode(zlib.compress(cloudpickle.dumps((function, args, kwargs)))).decode()
    if len(sent) > MOST_BYTES:
        raise ValueError(
            f"The function with its arguments takes {len(sent)} bytes, at most {MOST_BYTES} can be "
            "sent: put data on a volume, and pass its path."
        )
    parts = [sent[start : start + PART_BYTES] for start in range(0, len(sent), PART_BYTES)]
    return FunctionCall([python, "-c", _RUNNER, kind, *parts], kind, secrets.token_hex(32))


def function_result(call: FunctionCall, log: str) -> Any:
    """What the function returned.

    Raises:
        TaskError: it raised.
        ResultMissingError: the log holds no result with the right mark.
    """
    for name, mark, text in reversed(_FRAME.findall(log)):
        try:
            # A result of that many bytes was not sent by the runner.
            data = _unpacked(base64.b64decode(text, validate=True))
        except (binascii.Error, zlib.error, ValueError):
            continue
        wanted = hmac.new(call.key.encode(), name.encode() + data, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(mark, wanted):
            continue
        if name == "error":
            kind, message, trace = json.loads(data)
            raise TaskError(f"{kind}: {message}", traceback_text=trace)
        if name == call.kind == "pickle":
            # The mark says that the caller's own task wrote it, and the caller asked for it.
            return import_module("pickle").loads(data)
        return json.loads(data)
    raise ResultMissingError("The log of the task holds no result that is whole and its own.")


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(data, 64 * RESULT_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError("too large")
    return found
