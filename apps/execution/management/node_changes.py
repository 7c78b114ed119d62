"""`manage.py node set | rekey | drain | pause | resume | off | remove`."""

from argparse import ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from apps.core.units import quantities_text
from apps.execution.services.node_changes import node_edit, node_rekey
from apps.execution.services.node_removal import node_remove
from apps.nodes.models import Node, Runtime
from apps.nodes.services import (
    node_declare_off,
    node_dismiss_serial,
    node_drain,
    node_pause,
    node_resume,
)

TEXTS = {
    "rename": "name",
    "address": "address",
    "user": "user",
    "key": "key_path",
    "runtime": "runtime",
    "state_dir": "state_dir",
    "port": "port",
    "allow_process": "allows_process",
}


def port(text: str) -> int:
    """A number that a port can have.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError("a port is a number between 1 and 65535")
    return int(text)


def add_change_parsers(verbs: Any) -> None:
    """One parser for each of `CHANGES`."""
    change = verbs.add_parser("set", help="change a node; how it is reached is tried first")
    change.add_argument("name")
    change.add_argument("--rename")
    for name in ("address", "user", "key", "state-dir", "pool"):
        change.add_argument(f"--{name}")
    change.add_argument("--port", type=port)
    change.add_argument("--allow-process", action=BooleanOptionalAction, help="without isolation")
    change.add_argument("--runtime", choices=Runtime.values)
    for name, metavar in (("label", "NAME=VALUE"), ("cap", "KEY=AMOUNT"), ("env", "NAME=VALUE")):
        words = "again for each; together they replace what was there"
        change.add_argument(f"--{name}", action="append", metavar=metavar, help=words)
    rekey = verbs.add_parser("rekey", help="pin the host key that the machine shows now")
    rekey.add_argument("name")
    rekey.add_argument("--fingerprint", default="", help="SHA256:... that you expect; else asks")
    rekey.add_argument("--replace", action="store_true", help="set up again, or another machine")
    rekey.add_argument("--reason", default="")
    for verb, words in (
        ("drain", "finish what runs there, take nothing new"),
        ("resume", "end the pause, the drain and a removal that waits"),
        ("pause", "take nothing new"),
        ("dismiss-serial", "dismiss the warning of a serial that is not signed"),
        ("off", "a silent machine is switched off: what ran there is lost"),
        ("remove", "free the name of a node on which nothing runs"),
    ):
        parser = verbs.add_parser(verb, help=words)
        parser.add_argument("name")
        if verb in {"pause", "off", "remove"}:
            parser.add_argument("--reason", default="")
        if verb == "remove":
            parser.add_argument("--force", action="store_true", help="stop what runs there")


def _set(node: Node, options: dict[str, Any]) -> None:
    values = {
        field: options[option] for option, field in TEXTS.items() if options[option] is not None
    }
    if options["pool"] is not None:
        values["pool"] = options["pool"]
    if options["label"] is not None:
        values["labels"] = _pairs(options["label"])
    if options["env"] is not None:
        values["environment"] = _pairs(options["env"])
    if options["cap"] is not None:
        values["capacity_cap"] = quantities_text(_pairs(options["cap"]), field="cap", keys=None)
    node_edit(actor=None, node=node, values=values)


def _rekey(node: Node, options: dict[str, Any]) -> None:
    node_rekey(
        actor=None,
        node=node,
        host_key=options["host_key"],
        is_replaced=options["replace"],
        reason=options["reason"],
    )


def _remove(node: Node, options: dict[str, Any]) -> None:
    node_remove(actor=None, node=node, is_forced=options["force"], reason=options["reason"])


def _pairs(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise CommandError(f"{text!r} is not NAME=VALUE.")
    return dict(text.split("=", 1) for text in texts)


CHANGES: dict[str, Callable[[Node, dict[str, Any]], object]] = {
    "set": _set,
    "rekey": _rekey,
    "remove": _remove,
    "drain": lambda node, _: node_drain(actor=None, node=node),
    "dismiss-serial": lambda node, _: node_dismiss_serial(actor=None, node=node),
    "off": lambda node, options: node_declare_off(actor=None, node=node, reason=options["reason"]),
    "pause": lambda node, options: node_pause(actor=None, node=node, reason=options["reason"]),
    "resume": lambda node, _: node_resume(actor=None, node=node),
}
