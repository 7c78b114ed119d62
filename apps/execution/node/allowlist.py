"""What a launch on this node may ask for at most, by a file that belongs to root.

The control plane's key reaches the helper, not this file: the holder of the key cannot widen it.
`node prepare` writes it:

{"runtimes": ["podman"], "mounts": ["/data"], "capabilities": [], "devices": [],
 "host_network": false, "root": false}

Without the file a node allows what the control plane sends, but no part of the node's own system.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, NamedTuple

from apps.execution.node import request_fields
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.specs import RUNTIMES, Spec

FILE = "/etc/rpm-node/allowlist.json"
# Another path, set by what starts the helper: the node's sshd, never a request.
VARIABLE = "RPM_NODE_ALLOWLIST"
# Those that a profile can name (`apps/policies/extra_permissions.py`).
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
# With one of these a task changes folders of root, whatever its user.
OVER_FILES = frozenset(["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID"])
# A path with more symbolic links than that leads in a circle; the kernel's own number.
MOST_LINKS = 40


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
        RequestRefusal: naming field and file.
    """
    allowed = read()
    is_root = "0" in spec.user.split(":") or (not spec.user and os.geteuid() == 0)
    wanted = [
        ("runtime", spec.runtime, spec.runtime in allowed.runtimes),
        ("uid", "root", allowed.root or not is_root),
    ]
    if spec.runtime != "process":
        wanted += _of_container(spec, allowed, home)
    for field, value, is_allowed in wanted:
        if not is_allowed:
            words = "%.200r is not in this node's list: root can allow it in %s"
            raise request_fields.refuse(field, words % (value, _path()))


def _of_container(spec: Spec, allowed: Allowlist, home: str) -> list[tuple[str, str, bool]]:
    """Field, value, and whether it is allowed."""
    wanted = [
        ("network", spec.network, spec.network != "host" or allowed.host_network),
        *[("capabilities", one, one in allowed.capabilities) for one in spec.capabilities],
    ]
    # A container of docker can have the number of our account, unless that is root's.
    trusted = {0} if spec.runtime == "docker" else {0, os.geteuid()}
    field, value = "", ""
    try:
        for field, value in [("device_paths", one) for one in spec.device_paths]:
            wanted.append((field, value, _is_device(value, allowed)))
        for field, value in [("volumes", one.source) for one in spec.volumes]:
            wanted.append((field, value, _is_mount(value, allowed, home, trusted)))
    except OSError as error:
        raise request_fields.refuse(
            field, "%.200r: %s" % (value, error.strerror or error)
        ) from None
    return wanted


def is_mount(source: str, home: str) -> bool:
    """Whether something may be made in this folder, whose path follows no links of other users.

    Raises:
        RequestRefusal: the list cannot be used.
    """
    allowed, trusted = read(), {0, os.geteuid()}
    try:
        real = _resolved(source, trusted)
    except OSError:
        real = source
    return _is_given(real, allowed, home, _resolved_all(allowed.mounts, trusted))


def read() -> Allowlist:
    """The node's list, the default one where there is none.

    Raises:
        RequestRefusal: there is one that cannot be used, so nothing is allowed.
    """
    path = _path()
    try:
        with open(path, encoding="utf-8") as source:
            content = json.load(source)
        return _list_of(content)
    except FileNotFoundError:
        return DEFAULT
    except (OSError, ValueError, TypeError) as error:
        raise RequestRefusal("not_allowed", "%s cannot be used: %s" % (path, error)) from None


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
    real = _resolved(path, {0})
    if not _is_below_one(real, _resolved_all(allowed.devices, {0})):
        return False
    return not allowed.is_default or not (real in MEMORY or _is_disk(real))


def _is_disk(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


def _is_mount(source: str, allowed: Allowlist, home: str, trusted: set[int]) -> bool:
    """Links are followed, as the runtime follows them. The helper's own files are never given.

    Raises:
        OSError: as `_resolved`.
    """
    mounts = _resolved_all(allowed.mounts, trusted)
    # Where tasks may be root, the owner of a folder that they get says nothing.
    is_open = allowed.root or not OVER_FILES.isdisjoint(allowed.capabilities)
    given = mounts if is_open and not allowed.is_default else ()
    return _is_given(_resolved(source, trusted, given), allowed, home, mounts)


def _is_given(real: str, allowed: Allowlist, home: str, mounts: tuple[str, ...]) -> bool:
    own = os.path.realpath(home)
    if _is_below(real, own):
        return False
    if allowed.is_default and (_is_systems(real) or _is_below(own, real)):
        return False
    return _is_below_one(real, mounts)


def _is_systems(path: str) -> bool:
    return any(_is_below(path, one) or _is_below(one, path) for one in SYSTEM)


def _resolved_all(paths: tuple[str, ...], trusted: set[int]) -> tuple[str, ...]:
    """Those of the list that stay what they are."""
    found = []
    for path in paths:
        try:
            found.append(_resolved(path, trusted))
        except OSError:
            continue
    return tuple(found)


def _resolved(path: str, trusted: set[int], given: tuple[str, ...] = ()) -> str:
    """The path without symbolic links; the runtime, which looks later, comes to the same place.

    Each folder of the path is checked before what is in it: only a trusted user can have changed
    what was checked, so the last part may belong to any user.

    Args:
        trusted: users who may change what the path leads to.
        given: folders that tasks may change with all below, whatever user owns them.

    Raises:
        OSError: another user can change it, or that cannot be determined.
    """
    parts, real, links = path.split("/"), "", 0
    while parts:
        name = parts.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            real = os.path.dirname(real)
            continue
        status = _entry(real, name, trusted, given)
        if status is None:
            # Nor does the runtime find it, and only a trusted user can make it.
            return os.path.normpath("/".join([real, name, *parts]))
        if not stat.S_ISLNK(status.st_mode):
            real = "%s/%s" % (real, name)
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink("%s/%s" % (real, name))
        real = "" if target.startswith("/") else real
        parts = target.split("/") + parts
    return real or "/"


def _entry(
    folder: str, name: str, trusted: set[int], given: tuple[str, ...]
) -> os.stat_result | None:
    """What has this name in a folder, which only trusted users can change; None: nothing.

    Raises:
        OSError: others can change it, or that cannot be determined.
    """
    try:
        status: os.stat_result | None = os.lstat("%s/%s" % (folder, name))
    except FileNotFoundError:
        status = None
    around = os.stat(folder or "/")
    is_own = status is not None and status.st_uid in trusted
    is_open = bool(around.st_mode & 0o022) and not (around.st_mode & stat.S_ISVTX and is_own)
    is_given = _is_below_one(folder or "/", given)
    if around.st_uid not in trusted or is_open or is_given:
        words = "others can change the folder %s, and so what is mounted: use another one"
        raise PermissionError(errno.EPERM, words % (folder or "/"))
    if status is not None and stat.S_ISLNK(status.st_mode) and not is_own:
        raise PermissionError(errno.EPERM, "%s/%s is another user's link" % (folder, name))
    return status


def _is_below_one(path: str, folders: tuple[str, ...]) -> bool:
    return any(_is_below(path, one) for one in folders)


def _is_below(path: str, folder: str) -> bool:
    return ("%s/" % path.rstrip("/")).startswith("%s/" % folder.rstrip("/"))
