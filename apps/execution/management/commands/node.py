"""`manage.py node`: preparing, adding, checking and listing machines, and changes to nodes."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.core.errors import RpmError
from apps.core.terminal import plain
from apps.core.units import quantities_text
from apps.execution.connections import pinned_key
from apps.execution.management.node_changes import CHANGES, add_change_parsers, port
from apps.execution.management.prepare_script import add_prepare_arguments, prepared_script
from apps.execution.protocol.answers import NodeInventory
from apps.execution.services.node_examination import node_examine
from apps.execution.services.node_registration import (
    SimulatedGpus,
    host_key_of,
    node_add,
    node_check,
    node_host_key,
)
from apps.execution.services.node_removal import tasks_named, tasks_on
from apps.execution.transport.host_keys import HostKey
from apps.nodes.models import Node, Runtime, Transport
from apps.policies.models import Pool


class Command(BaseCommand):
    help = "Add a machine, check one, or list them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = verbs.add_parser("add", help="reach a machine, confirm its key, install the helper")
        _add_arguments(add)
        check = verbs.add_parser(
            "check",
            help="what it has, and what has to be fixed",
        )
        check.add_argument("name")
        verbs.add_parser("list", help="all nodes")
        add_change_parsers(verbs)
        prepare = verbs.add_parser("prepare", help="a script that prepares a bare machine")
        add_prepare_arguments(prepare)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            {
                "add": self._add,
                "check": self._check,
                "list": self._list,
                "prepare": self._prepare,
                **dict.fromkeys(CHANGES, self._change),
            }[options["verb"]](options)
        except RpmError as error:
            raise CommandError(_line(error.detail)) from error

    def _say(self, *columns: str) -> None:
        """A line of it. What a node says of itself is shown, not carried out by the terminal."""
        self.stdout.write("\t".join(_line(one) for one in columns))

    def _add(self, options: dict[str, Any]) -> None:
        host_key = None if options["local"] else self._confirmed_key(options)
        simulated = None
        if options["simulated_gpus"]:
            simulated = SimulatedGpus(
                count=options["simulated_gpus"],
                model=options["simulated_model"],
                cdi=options["simulated_cdi"],
            )
        node = node_add(
            name=options["name"],
            pool=_pool(options["pool"]),
            actor=None,
            host_key=host_key,
            simulated=simulated,
            is_shared_machine=options["same_machine"],
            transport=Transport.LOCAL if options["local"] else Transport.SSH,
            address=options["address"],
            port=options["port"],
            user=options["user"],
            key_path=options["key"],
            runtime=options["runtime"],
            allows_process=options["allow_process"],
            state_dir=options["state_dir"],
            environment=dict(_pair(text) for text in options["env"]),
            capacity_cap=quantities_text(
                dict(_pair(text) for text in options["cap"]), field="cap", keys=None
            ),
        )
        self._say(f"{node.name} is added and healthy.")
        self._show(node)

    def _confirmed_key(self, options: dict[str, Any]) -> HostKey:
        if not (options["address"] and options["user"] and options["key"]):
            raise CommandError("Give --address, --user and --key, or --local for this machine.")
        key = node_host_key(address=options["address"], port=options["port"])
        self._say(f"{options['address']} shows {key.kind} {key.fingerprint}")
        wanted = options["fingerprint"]
        if wanted:
            if wanted != key.fingerprint:
                raise CommandError("That is not the fingerprint you gave: nothing was sent to it.")
            return key
        _confirm()
        return key

    def _check(self, options: dict[str, Any]) -> None:
        node = _node(options["name"])
        inventory, findings = node_examine(node)
        self._show_inventory(inventory)
        for finding in findings:
            mark = "ok  " if finding.is_fine else "BAD "
            self._say(f"{mark} {finding.name:<8} {finding.words}")
            if finding.fix:
                self._say(f"     {'':<8} {finding.fix}")
        wrong = sum(not finding.is_fine for finding in findings)
        if wrong:
            raise CommandError(f"{wrong} of {len(findings)} things need attention.")

    def _show(self, node: Node) -> None:
        inventory, _ = node_check(node)
        self._show_inventory(inventory)

    def _show_inventory(self, inventory: NodeInventory) -> None:
        self._say(f"  {inventory.hostname}, {inventory.kernel}, Python {inventory.python}")
        gpus = f"{len(inventory.devices)} GPU" if inventory.devices else "no GPU"
        self._say(f"  {gpus}; NVIDIA: {inventory.nvidia}")
        for device in inventory.devices:
            made_up = " (simulated)" if device.simulated else ""
            handed = device.cdi or "no CDI name"
            self._say(
                f"    {device.index}: {device.model}, {device.memory_mb} MB, {handed}{made_up}"
            )
        self._say(
            f"  CPU {inventory.cpu_milli / 1000:g}, memory {inventory.memory_mb} MB, "
            f"disk {inventory.disk_free_mb} of {inventory.disk_mb} MB free"
        )
        for name, words in sorted(inventory.runtimes.items()):
            self._say(f"  {name}: {words}")

    def _change(self, options: dict[str, Any]) -> None:
        node = _node(options["name"])
        if options["verb"] == "rekey":
            CHANGES["rekey"](node, {**options, "host_key": self._new_key(node, options)})
            self._say(f"{node.name}: the shown key is pinned, and the machine has answered.")
            return
        stops = tasks_on(node) if options.get("force") else []
        CHANGES[options["verb"]](node, {**options, "pool": _pool(options.get("pool"))})
        node.refresh_from_db()
        if stops:
            self._say(f"stopped for that: {tasks_named(stops)}")
        is_going = " and goes once nothing is left there" if node.removal_asked_at else ""
        self._say(f"{node.name}: {'removed' if node.is_removed else node.state}{is_going}")

    def _new_key(self, node: Node, options: dict[str, Any]) -> HostKey:
        pinned, shown = pinned_key(node), host_key_of(node, wanted=options["fingerprint"])
        self._say(f"pinned: {pinned.fingerprint if pinned is not None else '-'}")
        self._say(f"shown:  {shown.fingerprint} ({shown.kind})")
        if not options["fingerprint"]:
            _confirm()
        return shown

    def _prepare(self, options: dict[str, Any]) -> None:
        script, out = prepared_script(options), options["out"]
        if out is None:
            self.stdout.write(script, ending="")
            return
        try:
            with out.open("x", encoding="utf-8") as target:
                target.write(script)
        except OSError as error:
            raise CommandError(f"{out} cannot be written: {error.strerror}.") from error
        self._say(f"{out}: read it, then run it on the machine as root.")

    def _list(self, _options: dict[str, Any]) -> None:
        nodes = Node.objects.filter(removed_at__isnull=True).select_related("pool")
        for node in nodes:
            where = "this machine" if node.transport == Transport.LOCAL else node.address
            pool = node.pool.name if node.pool else "no pool"
            reason = f" ({node.pause_reason})" if node.pause_reason else ""
            flags = [
                word
                for word, is_so in (
                    ("being removed", node.removal_asked_at),
                    ("switched off", node.off_at),
                    (f"paused{reason}", node.is_paused),
                    ("draining" if node.is_paused else f"draining{reason}", node.is_draining),
                )
                if is_so
            ]
            state = ", ".join([*flags, node.state])
            self._say(node.name, pool, where, state, node.state_detail or node.preflight_problem)


def _add_arguments(add: ArgumentParser) -> None:
    add.add_argument("name")
    add.add_argument("--pool", help="name of the pool that it serves")
    add.add_argument("--local", action="store_true", help="this machine, without SSH")
    add.add_argument("--address", default="")
    add.add_argument("--port", type=port, default=22)
    add.add_argument("--user", default="")
    add.add_argument("--key", default="", help="private key for this node, a file on this machine")
    add.add_argument("--fingerprint", default="", help="SHA256:... that you expect; asks otherwise")
    add.add_argument("--runtime", choices=Runtime.values, default=Runtime.PODMAN)
    add.add_argument("--allow-process", action="store_true", help="tasks without isolation")
    add.add_argument("--state-dir", default="", help="folder of the helper on the node")
    add.add_argument(
        "--same-machine",
        action="store_true",
        help="though the machine is a node already: both give out its CPU and memory",
    )
    add.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    add.add_argument("--cap", action="append", default=[], metavar="KEY=AMOUNT")
    add.add_argument("--simulated-gpus", type=int, default=0)
    add.add_argument("--simulated-model", default="Simulated GPU")
    add.add_argument("--simulated-cdi", default="", help="CDI name, {index} for the number")


def _pool(name: str | None) -> Pool | None:
    if not name:
        return None
    pool = Pool.objects.filter(name__iexact=name, removed_at__isnull=True).first()
    if pool is None:
        raise CommandError(f"There is no pool {name!r}.")
    return pool


def _node(name: str) -> Node:
    node = Node.objects.filter(name__iexact=name, removed_at__isnull=True).first()
    if node is None:
        raise CommandError(f"There is no node {name!r}.")
    return node


def _line(text: str) -> str:
    return plain(text).translate(dict.fromkeys(map(ord, "\t\r\n"), " "))


def _confirm() -> None:
    try:
        answer = input("Is this the machine's own key? Type yes: ")
    except EOFError:
        words = "There is no terminal to confirm the key on. Pass --fingerprint SHA256:..."
        raise CommandError(words) from None
    if answer.strip().lower() != "yes":
        raise CommandError("Not confirmed: nothing was sent to it.")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CommandError(f"{text!r} is not NAME=VALUE.")
    return name, value
