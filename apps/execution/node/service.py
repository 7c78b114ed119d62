"""One request in, one answer out."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import Any, Callable

from apps.execution.node import clocks, crash_points, files, request_fields
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.members import forget, launch, stop
from apps.execution.node.preflight import preflight
from apps.execution.node.probe import probe
from apps.execution.node.prune import prune
from apps.execution.node.pull import pull
from apps.execution.node.sync import sync

PROTOCOL = 1
REQUEST_BYTES = 16 * 1024 * 1024
DETAIL_CHARACTERS = 4000

Verb = Callable[[str, dict[str, Any], dict[str, Any]], dict[str, Any]]
VERBS: dict[str, Verb] = {
    "forget": forget,
    "launch": launch,
    "preflight": preflight,
    "probe": probe,
    "prune": prune,
    "pull": pull,
    "stop": stop,
    "sync": sync,
}


def serve(home: str) -> None:
    """Answer the one request on standard input; whatever happens, the answer is JSON."""
    os.umask(0o077)
    crash_points.arm(home)
    content = sys.stdin.buffer.read(REQUEST_BYTES + 1)
    answer = answer_to(home, content)
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()


def answer_to(home: str, content: bytes) -> dict[str, Any]:
    """The answer with the node's clocks around it, which every exchange needs."""
    config = files.read_json(os.path.join(home, "config.json")) or {}
    try:
        body: dict[str, Any] = {"answer": _carry_out(home, config, content)}
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        body = {"refusal": {"code": "disk_full", "detail": "%s: %s" % (home, error.strerror)}}
    except RequestRefusal as refusal:
        body = {"refusal": {"code": refusal.code, "detail": refusal.detail[:DETAIL_CHARACTERS]}}
    return {
        "protocol": PROTOCOL,
        "helper": config.get("helper", ""),
        "boot_id": clocks.boot_id(),
        "uptime_s": clocks.uptime_s(),
        "wall_s": clocks.wall_s(),
        **body,
    }


def _carry_out(home: str, config: dict[str, Any], content: bytes) -> dict[str, Any]:
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
    if not isinstance(verb, str) or verb not in VERBS:
        raise request_fields.refuse("verb", "%.40r is none of %s" % (verb, ", ".join(VERBS)))
    return VERBS[verb](home, config, request)
