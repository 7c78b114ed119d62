"""Sent to `python3 -` once, with the helper's files as its payload. Stands alone, any Python 3."""

import contextlib
import json
import os
import py_compile
import shutil
import sys
from typing import Any

OLDEST_PYTHON = (3, 9)
# Set by the gate of a machine that `node prepare` made: its folder for the helper.
HOME = "RPM_NODE_HOME"


def install(payload: "dict[str, Any]") -> None:
    """Put the helper's files in place and print where; the switch to them is one rename.

    Exchanges that run meanwhile go on with the files they have read. A folder whose identity is
    among `known` belongs to the node of that name: nothing is written there.
    """
    if sys.version_info < OLDEST_PYTHON:
        found = "%d.%d" % sys.version_info[:2]
        sys.stdout.write(
            json.dumps({"error": "Python 3.9 or newer is needed, this node has %s" % found})
        )
        return
    os.umask(0o077)
    home = payload["home"] or os.environ.get(HOME) or _default_home(payload["installation"])
    known = payload["known"].get(_identity(home), "")
    if known:
        sys.stdout.write(json.dumps({"home": home, "helper": "", "known": known}))
        return
    folder = os.path.join(home, "helper-" + payload["helper"])
    if not os.path.isdir(folder):
        _write_files(folder, payload["files"])
    names = ("installation", "helper", "environment", "has_streams")
    config = {name: payload[name] for name in names}
    _replace(os.path.join(home, "config.json"), json.dumps(config).encode())
    link = os.path.join(home, "helper")
    temporary = "%s.%d.tmp" % (link, os.getpid())
    os.symlink(os.path.basename(folder), temporary)
    os.rename(temporary, link)
    answer = {"home": home, "helper": payload["helper"], "identity": _own_identity(home)}
    sys.stdout.write(json.dumps(answer))


def _own_identity(home: str) -> str:
    """The id of this folder on this machine, unlike every other; made once, and kept."""
    temporary = os.path.join(home, "identity.%d.tmp" % os.getpid())
    _replace(temporary, os.urandom(16).hex().encode())
    # Only if it has none.
    with contextlib.suppress(OSError):
        os.link(temporary, os.path.join(home, "identity"))
    os.unlink(temporary)
    # Without it, and without the helper, a power cut would make this another machine.
    _sync_folder(home)
    return _identity(home)


def _identity(home: str) -> str:
    try:
        with open(os.path.join(home, "identity")) as source:
            return source.read(64)
    except OSError:
        return ""


def _default_home(installation: str) -> str:
    if os.geteuid() == 0:
        return os.path.join("/var/lib/rpm", installation)
    return os.path.join(os.path.expanduser("~"), ".rpm", installation)


def _write_files(folder: str, files: "dict[str, str]") -> None:
    temporary = "%s.%d.tmp" % (folder, os.getpid())
    for name, content in files.items():
        path = os.path.join(temporary, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _replace(path, content.encode())
        # Compiled once here: every exchange starts a Python, which would compile it again.
        py_compile.compile(path, doraise=True)
    for folder_of_files, _, _ in os.walk(temporary):
        _sync_folder(folder_of_files)
    try:
        os.rename(temporary, folder)
    except OSError:
        # Another process installed the same helper at the same time.
        shutil.rmtree(temporary)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: str, content: bytes) -> None:
    temporary = "%s.%d.tmp" % (path, os.getpid())
    with open(temporary, "wb") as target:
        target.write(content)
        target.flush()
        os.fsync(target.fileno())
    os.rename(temporary, path)
