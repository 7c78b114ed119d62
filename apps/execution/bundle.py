"""The helper as one program for `python3 -`, made of the files in `node/`."""

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Final

NODE_FILES: Final = Path(__file__).parent / "node"
HOME: Final = re.compile(r"/[A-Za-z0-9._/-]{1,512}")
INSTALLATION: Final = re.compile(r"[a-z0-9]{4,32}")


@cache
def helper_files() -> dict[str, str]:
    """Path below the helper's folder -> content; modules keep the names they have here."""
    files = {"apps/__init__.py": "", "apps/execution/__init__.py": ""}
    for path in sorted(NODE_FILES.glob("*.py")):
        if path.name != "installer.py":
            name = path.name if path.name == "__main__.py" else f"apps/execution/node/{path.name}"
            files[name] = path.read_text(encoding="utf-8")
    return files


@cache
def helper_version() -> str:
    """Names exactly this helper; every answer of a node carries the version that gave it."""
    return hashlib.sha256(json.dumps(helper_files()).encode()).hexdigest()[:16]


def install_program(
    installation: str,
    *,
    home: str = "",
    environment: dict[str, str] | None = None,
    known: dict[str, str] | None = None,
    has_streams: bool = True,
) -> bytes:
    """What `python3 -` reads on a node to install the helper there.

    Args:
        installation: the control plane's own id; part of names and labels.
        home: folder for program and state; empty for the one that the machine's gate tells, else
            `/var/lib/rpm/<id>` or `~/.rpm/<id>`.
        environment: variables for podman and docker on this node, such as CONTAINERS_CONF.
        known: names of other nodes by the identity of their helper: nothing is written there.
        has_streams: whether the helper begins streams into tasks.
    """
    if not INSTALLATION.fullmatch(installation) or (home and not HOME.fullmatch(home)):
        raise ValueError(f"not an installation id or folder: {installation!r}, {home!r}")
    payload = {
        "installation": installation,
        "home": home,
        "helper": helper_version(),
        "environment": environment or {},
        "known": known or {},
        "has_streams": has_streams,
        "files": helper_files(),
    }
    source = (NODE_FILES / "installer.py").read_text(encoding="utf-8")
    return f"{source}\n\ninstall(json.loads({json.dumps(payload)!r}))\n".encode()


def remote_command(home: str) -> str:
    """The one command that runs on a node after the installation.

    No start-up files and no site-packages: `-E` and `-S` save half the start of Python.
    """
    if not HOME.fullmatch(home):
        raise ValueError(f"not a folder of the helper: {home!r}")
    return f"python3 -ES {home}/helper"
