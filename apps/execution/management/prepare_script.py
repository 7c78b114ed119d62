"""`manage.py node prepare`: a script for a bare machine, to be read before it is run."""

import json
import re
import shlex
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from apps.execution.bundle import HOME, remote_command
from apps.execution.connections import installation_key
from apps.execution.transport.ssh import EXCHANGES_AT_ONCE
from apps.nodes.models import Volume
from apps.policies.extra_permissions import extra_permissions_of, permission_problem
from apps.policies.models import Profile

SCRIPT = Path(__file__).parent / "prepare.sh"
ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
# A comment may follow the key; it is left out.
PUBLIC_KEY = re.compile(r"((?:ssh|ecdsa|sk)-[A-Za-z0-9@.-]+ [A-Za-z0-9+/]+={0,3})(?: .*)?")

# Not "rpm": an account of that name belongs to the package database of some distributions.
DEFAULT_ACCOUNT, DEFAULT_FOLDER, DEFAULT_RUNTIME = "rpm-node", "/var/lib/rpm-node", "podman"
HOST_NETWORK = "host-network"
# Tasks without a container, next to those in the runtime's.
PROCESS = "process"


@dataclass(frozen=True, slots=True)
class MachineSetup:
    """What differs between machines.

    Args:
        folder: home of the account; the helper's own folder lies in it.
        nvidia_source: a line for apt's list of sources, or empty.
        allowed: what tasks may have there, each as `mount:/PATH`, `host-network`, `process`, or as
            profiles name permissions.
    """

    public_key: str
    account: str = DEFAULT_ACCOUNT
    folder: str = DEFAULT_FOLDER
    runtime: str = DEFAULT_RUNTIME
    nvidia_source: str = ""
    allowed: tuple[str, ...] = ()


def script_for(machine: MachineSetup, *, installation: str) -> str:
    """The script, for any POSIX shell.

    Raises:
        ValueError: with what is wrong about the machine's description.
    """
    if not ACCOUNT.fullmatch(machine.account) or machine.account == "root":
        raise ValueError(f"{machine.account!r} is no name for an account of its own")
    if not HOME.fullmatch(machine.folder):
        raise ValueError(f"{machine.folder!r} is no folder")
    key = PUBLIC_KEY.fullmatch(machine.public_key.strip())
    if key is None:
        raise ValueError("that is not one public key of SSH, as a .pub file holds it")
    if not machine.nvidia_source.isprintable():
        raise ValueError("the package source is more than one line")
    state = f"{machine.folder}/{installation}"
    values = {
        "ACCOUNT": machine.account,
        "FOLDER": machine.folder,
        "STATE": state,
        "COMMAND": remote_command(state),
        "PUBLIC_KEY": key[1],
        "RUNTIME": machine.runtime,
        "SESSIONS": str(EXCHANGES_AT_ONCE),
        "NVIDIA_SOURCE": machine.nvidia_source,
        "ALLOWED": _allowlist(machine),
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    head = f"#!/bin/sh\n# Prepares a machine to run tasks of the RPM installation {installation}.\n"
    return head + SCRIPT.read_text(encoding="utf-8").replace(
        "\nGATE=", "\n" + "\n".join(lines) + "\n\nGATE=", 1
    )


def _allowlist(machine: MachineSetup) -> str:
    """What the node's helper lets a launch have at most (`apps/execution/node/allowlist.py`)."""
    mounts = [one.removeprefix("mount:") for one in machine.allowed if one.startswith("mount:")]
    others = [one for one in machine.allowed if not one.startswith("mount:")]
    if not all(HOME.fullmatch(path) and "/.." not in path for path in mounts):
        raise ValueError("a mount is no plain folder such as /data")
    for one in others:
        if one not in {HOST_NETWORK, PROCESS} and permission_problem(one):
            words = f"{permission_problem(one)}, nor mount:/PATH, {HOST_NETWORK} or {PROCESS}"
            raise ValueError(f"{one!r} {words}")
    extras = extra_permissions_of(others)
    content = {
        "runtimes": [machine.runtime, *([PROCESS] if PROCESS in others else [])],
        "mounts": sorted(mounts),
        "capabilities": extras.capabilities,
        "devices": extras.device_paths,
        "host_network": HOST_NETWORK in others,
        "root": extras.is_root,
    }
    return json.dumps(content, indent=2)


def _in_use() -> set[str]:
    """What the volumes and profiles of this installation ask of nodes today."""
    volumes = Volume.objects.filter(removed_at__isnull=True).values_list("path", flat=True)
    profiles = Profile.objects.filter(removed_at__isnull=True)
    rows = list(profiles.values_list("extra_permissions", "host_network"))
    extras = {one for permissions, _ in rows for one in permissions if not permission_problem(one)}
    network = {HOST_NETWORK} if any(is_host for _, is_host in rows) else set()
    return {f"mount:{path}" for path in volumes} | extras | network


def add_prepare_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--public-key", type=Path, required=True, help="the .pub file of its key")
    parser.add_argument("--account", default=DEFAULT_ACCOUNT)
    parser.add_argument("--folder", default=DEFAULT_FOLDER, help="home of the account")
    parser.add_argument("--runtime", choices=["podman", "docker"], default=DEFAULT_RUNTIME)
    parser.add_argument(
        "--nvidia-source", default="", help="line for apt's sources with NVIDIA's container toolkit"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="WHAT",
        help="let tasks have more than volumes and profiles ask today: mount:/PATH, root, "
        f"capability:NAME, device:/dev/PATH, {HOST_NETWORK}; {PROCESS}: tasks without a container",
    )
    parser.add_argument("--out", type=Path, help="write to this file instead of printing")


def prepared_script(options: dict[str, Any]) -> str:
    """Raises CommandError where an option will not do."""
    try:
        machine = MachineSetup(
            public_key=options["public_key"].read_text(encoding="utf-8"),
            account=options["account"],
            folder=options["folder"],
            runtime=options["runtime"],
            nvidia_source=options["nvidia_source"],
            allowed=tuple(sorted({*options["allow"], *_in_use()})),
        )
        return script_for(machine, installation=installation_key())
    except OSError as error:
        raise CommandError(f"{options['public_key']} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise CommandError(f"{error}.") from error
