"""Private keys of nodes that may be named from afar: files in the server's own folder."""

import re

from django.conf import settings

from apps.core.errors import BadInput
from apps.execution.transport.ssh import load_private_key

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}")


def node_key_path(name: str) -> str:
    """Where the key of that name lies.

    Raises:
        BadInput: no such file in RPM_HOME, or it holds no private key.
    """
    path = settings.HOME.file(name)
    problem = f"must be the name of a private key's file in {settings.HOME.path} on the server"
    try:
        if not NAME.fullmatch(name):
            raise ValueError(problem)
        load_private_key(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"key {problem}.", fields={"key": problem}) from error
    return str(path)
