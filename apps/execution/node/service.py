"""One request in, one answer out; or many, through a channel."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from functools import partial
from typing import Any, Callable

from apps.execution.node import channel, clocks, crash_points, files, request_fields, streams
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.members import forget, launch, stop
from apps.execution.node.preflight import preflight
from apps.execution.node.probe import probe
from apps.execution.node.prune import prune
from apps.execution.node.pull import pull
from apps.execution.node.sync import sync

PROTOCOL = 1
REQUEST_BYTES = channel.FRAME_BYTES
IDENTITY_CHARACTERS = 64
DETAIL_CHARACTERS = 4000


def hello(home: str, config: dict[str, Any], _request: dict[str, Any]) -> dict[str, Any]:
    """What a control plane has to know before it asks anything else; nothing is changed."""
    try:
        with open(os.path.join(home, "identity"), encoding="ascii") as source:
            identity = source.read(IDENTITY_CHARACTERS)
    except OSError:
        identity = ""
    environment = json.dumps(config.get("environment", {}), sort_keys=True).encode()
    return {
        "channel": True,
        "identity": identity,
        "environment": hashlib.sha256(environment).hexdigest(),
        "has_streams": config.get("has_streams", True),
    }


Verb = Callable[[str, dict[str, Any], dict[str, Any]], dict[str, Any]]
VERBS: dict[str, Verb] = {
    "forget": forget,
    "hello": hello,
    "launch": launch,
    "preflight": preflight,
    "probe": probe,
    "prune": prune,
    "pull": pull,
    "stop": stop,
    "sync": sync,
}


def serve(home: str, version: str) -> None:
    """Answer what standard input asks; whatever happens, an answer is JSON.

    Args:
        version: of this helper.
    """
    os.umask(0o077)
    content = _read(len(channel.OPENING))
    if content == channel.OPENING:
        channel.Channel(
            lambda request: _answer(home, version, request), partial(_stream, home, version)
        ).serve(version.encode())
        return
    content += _read(REQUEST_BYTES + 1 - len(content))
    sys.stdout.buffer.write(_answer(home, version, content))
    sys.stdout.buffer.flush()


def _read(size: int) -> bytes:
    """So many bytes of standard input, or all that there are; what follows stays there."""
    parts = []
    while size and (part := os.read(0, min(size, channel.CHUNK_BYTES))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _answer(home: str, version: str, content: bytes) -> bytes:
    crash_points.arm(home)
    return json.dumps(answer_to(home, content, version)).encode()


def _stream(home: str, version: str, number: int, content: bytes, received: bytes) -> None:
    """Answer whether there is a stream, then relay it to its end."""
    begun: list[streams.Stream | streams.PortStream] = []

    def begin(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
        begun.append(streams.begin(home, config, request))
        return {"state": "open"}

    answer = json.dumps(answer_to(home, content, version, verbs={"stream": begin})).encode()
    try:
        channel.send(number, channel.ANSWER, answer)
        for stream in begun:
            stream.relay(number, received)
    finally:
        for stream in begun:
            stream.end()


def answer_to(
    home: str, content: bytes, version: str, *, verbs: dict[str, Verb] = VERBS
) -> dict[str, Any]:
    """The answer with the node's clocks around it, which every exchange needs."""
    config = files.read_json(os.path.join(home, "config.json")) or {}
    try:
        body: dict[str, Any] = {"answer": _carry_out(home, config, content, verbs)}
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        body = {"refusal": {"code": "disk_full", "detail": "%s: %s" % (home, error.strerror)}}
    except RequestRefusal as refusal:
        body = {"refusal": {"code": refusal.code, "detail": refusal.detail[:DETAIL_CHARACTERS]}}
    return {
        "protocol": PROTOCOL,
        "helper": version,
        "boot_id": clocks.boot_id(),
        "uptime_s": clocks.uptime_s(),
        "wall_s": clocks.wall_s(),
        **body,
    }


def _carry_out(
    home: str, config: dict[str, Any], content: bytes, verbs: dict[str, Verb]
) -> dict[str, Any]:
    if len(content) > REQUEST_BYTES:
        raise RequestRefusal("invalid", "the request is longer than %d bytes" % REQUEST_BYTES)
    try:
        request = json.loads(content)
    except (ValueError, RecursionError):
        raise RequestRefusal("invalid", "the request is not JSON") from None
    if not isinstance(request, dict):
        raise RequestRefusal("invalid", "the request is not an object")
    if request.get("protocol") != PROTOCOL:
        raise RequestRefusal("protocol", "this helper speaks protocol %d" % PROTOCOL)
    if not config or request.get("installation") != config.get("installation"):
        raise RequestRefusal("installation", "this helper serves another installation")
    verb = request.get("verb")
    if not isinstance(verb, str) or verb not in verbs:
        raise request_fields.refuse("verb", "%.40r is none of %s" % (verb, ", ".join(verbs)))
    return verbs[verb](home, config, request)
