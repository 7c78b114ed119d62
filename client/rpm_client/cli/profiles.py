"""Servers and credentials that `rpmctl login` keeps: one file that only its owner reads."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

DEFAULT = "default"


@dataclass(frozen=True)
class ServerProfile:
    """The address of a server, and a key and secret or a token for it."""

    url: str
    key: str = ""
    secret: str = ""
    token: str = ""


def config_path() -> Path:
    """Where the profiles are: in the folder that XDG names for configuration."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "rpmctl" / "profiles.json"


def read_profiles() -> dict[str, ServerProfile]:
    """All profiles by name.

    Raises:
        BadParameter: other users can read the file, or it is not one of profiles.
    """
    path = config_path()
    try:
        if path.stat().st_mode & 0o077:
            raise typer.BadParameter(
                f"{path} can be read by other users: run chmod 600 {path}, and make new "
                "credentials."
            )
        stored: Any = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): ServerProfile(**values) for name, values in stored.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        raise typer.BadParameter(
            f"{path} is not a file of profiles: delete it, and run rpmctl login."
        ) from None


def write_profiles(profiles: dict[str, ServerProfile]) -> Path:
    """Replace the file at once, with a mode that no other user can read."""
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = json.dumps({name: asdict(one) for name, one in profiles.items()}, indent=2)
    # Such files have mode 0600 from the beginning.
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content + "\n")
    Path(name).replace(path)
    return path
