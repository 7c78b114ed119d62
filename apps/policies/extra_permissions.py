"""The extra permissions that a profile may give its containers; pure.

root                the container's processes are root inside, still without capabilities
capability:NAME     one capability of the kernel
device:/dev/PATH    one device file of the node
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

ROOT = "root"
# None of these gives a container's user control over the node.
CAPABILITIES = frozenset(
    {
        "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "KILL", "NET_BIND_SERVICE",
        "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_NICE",
        "SYS_PTRACE", "SYS_RESOURCE",
    }
)  # fmt: skip
_DEVICE = re.compile(r"/dev(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){1,4}")


@dataclass(frozen=True, slots=True)
class ExtraPermissions:
    """The permissions of a profile, sorted out."""

    is_root: bool = False
    capabilities: tuple[str, ...] = ()
    device_paths: tuple[str, ...] = ()


def permission_problem(permission: str) -> str:
    """What is wrong with a permission; empty if nothing is."""
    kind, _, name = permission.partition(":")
    if permission == ROOT:
        return ""
    if kind == "capability":
        return "" if name in CAPABILITIES else f"names none of {', '.join(sorted(CAPABILITIES))}"
    if kind == "device":
        return "" if _DEVICE.fullmatch(name) else "names no path such as /dev/infiniband/uverbs0"
    return "must be root, capability:NAME or device:/dev/PATH"


def extra_permissions_of(permissions: Iterable[str]) -> ExtraPermissions:
    """The permissions by kind; an unknown one is left out, never guessed."""
    good = sorted(one for one in set(permissions) if not permission_problem(one))
    pairs = [one.partition(":") for one in good]
    return ExtraPermissions(
        is_root=ROOT in good,
        capabilities=tuple(name for kind, _, name in pairs if kind == "capability"),
        device_paths=tuple(name for kind, _, name in pairs if kind == "device"),
    )
