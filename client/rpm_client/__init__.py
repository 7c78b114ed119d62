"""The Python client of RPM, the resource policy manager.

from rpm_client import Client
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpm_client.client import Client
    from rpm_client.errors import RefusedError, UnreachableError

__all__ = ["Client", "RefusedError", "UnreachableError"]
# `rpmctl --help` needs no HTTP: what takes long to import comes when it is used.
_HOMES = {
    "Client": "rpm_client.client",
    "RefusedError": "rpm_client.errors",
    "UnreachableError": "rpm_client.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
