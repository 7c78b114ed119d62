"""What a launch on this node may ask for at most, by a file of root's.

The control plane's key reaches the helper, not this file: whoever has the key cannot widen it.
`node prepare` writes it:

{"runtimes": ["podman"], "mounts": ["/data"], "capabilities": [], "devices": [],
 "host_network": false, "root": false}

Without the file a node allows what the control plane sends, but no part of the node's own system.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, NamedTuple

from apps.execution.node import checks
from apps.execution.node.errors import Refusal
from apps.execution.node.specs import RUNTIMES, Spec

FILE = "/etc/rpm-node/allowlist.json"
# Another place, where whoever starts the helper says so: the node's sshd, never a request.
VARIABLE = "RPM_NODE_ALLOWLIST"
# Those that a profile can name (`apps/policies/extras.py`).
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "KILL", "NET_BIND_SERVICE", "NET_RAW",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_NICE", "SYS_PTRACE",
    "SYS_RESOURCE",
)  # fmt: skip
# Who writes there is root of the node.
SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin",
    "/sys", "/usr", "/var/lib/containers", "/var/lib/docker", "/var/spool",
)  # fmt: skip
MEMORY = ("/dev/kmem", "/dev/mem", "/dev/port")


class Allowlist(NamedTuple):
    """The most that a launch gets. `mounts` and `devices` with all that is below them."""

    runtimes: tuple[str, ...]
    mounts: tuple[str, ...]
    capabilities: tuple[str, ...]
    devices: tuple[str, ...]
    host_network: bool
    root: bool
    # Whether `mounts` and `devices` leave out what is the system's.
    is_default: bool = False


DEFAULT = Allowlist(
    RUNTIMES, ("/",), CAPABILITIES, ("/dev",), host_network=False, root=True, is_default=True
)


def check(spec: Spec, home: str) -> None:
    """Refuse what goes beyond the list of this node.

    Raises:
        Refusal: naming field and file.
    """
    allowed = read()
    is_root = spec.user.startswith("0:") or (not spec.user and os.geteuid() == 0)
    wanted = [
        ("runtime", spec.runtime, spec.runtime in allowed.runtimes),
        ("uid", "root", allowed.root or not is_root),
    ]
    if spec.runtime != "process":
        wanted += _of_container(spec, allowed, home)
    for field, value, is_allowed in wanted:
        if not is_allowed:
            words = "%.200r is not in this node's list: root can allow it in %s"
            raise checks.refuse(field, words % (value, _path()))


def _of_container(spec: Spec, allowed: Allowlist, home: str) -> list[tuple[str, str, bool]]:
    """Field, value, and whether it is allowed."""
    return [
        ("network", spec.network, spec.network != "host" or allowed.host_network),
        *[("capabilities", one, one in allowed.capabilities) for one in spec.capabilities],
        *[("device_paths", one, _is_device(one, allowed)) for one in spec.device_paths],
        *[("volumes", one.source, _is_mount(one.source, allowed, home)) for one in spec.volumes],
    ]


def is_mount(source: str, home: str) -> bool:
    """Whether a volume may be this folder of the node.

    Raises:
        Refusal: the list cannot be used.
    """
    return _is_mount(source, read(), home)


def read() -> Allowlist:
    """The node's list, the default one where there is none.

    Raises:
        Refusal: there is one that cannot be used, so nothing is allowed.
    """
    path = _path()
    try:
        with open(path, encoding="utf-8") as source:
            content = json.load(source)
        return _list_of(content)
    except FileNotFoundError:
        return DEFAULT
    except (OSError, ValueError, TypeError) as error:
        raise Refusal("not_allowed", "%s cannot be used: %s" % (path, error)) from None


def _path() -> str:
    return os.environ.get(VARIABLE) or FILE


def _list_of(content: Any) -> Allowlist:
    names = Allowlist._fields[:-1]
    if not isinstance(content, dict) or set(content) != set(names):
        raise ValueError("it has to hold exactly %s" % ", ".join(names))
    values: list[Any] = []
    for name in names:
        value = content[name]
        is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if not (isinstance(value, bool) if name in ("host_network", "root") else is_list):
            raise ValueError("%s is of another type" % name)
        values.append(tuple(value) if is_list else value)
    return Allowlist(*values)


def _is_device(path: str, allowed: Allowlist) -> bool:
    real = os.path.realpath(path)
    if not _is_below_one(real, allowed.devices):
        return False
    return not allowed.is_default or not (real in MEMORY or _is_disk(real))


def _is_disk(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


def _is_mount(source: str, allowed: Allowlist, home: str) -> bool:
    """Links are followed, as the runtime follows them. The helper's own files are never given."""
    real = os.path.realpath(source)
    if _is_below(real, os.path.realpath(home)):
        return False
    if allowed.is_default and _is_systems(real):
        return False
    return _is_below_one(real, allowed.mounts)


def _is_systems(path: str) -> bool:
    return any(_is_below(path, one) or _is_below(one, path) for one in SYSTEM)


def _is_below_one(path: str, folders: tuple[str, ...]) -> bool:
    return any(_is_below(path, os.path.realpath(one)) for one in folders)


def _is_below(path: str, folder: str) -> bool:
    return ("%s/" % path.rstrip("/")).startswith("%s/" % folder.rstrip("/"))
