"""The Python client of RPM, the resource policy manager.

from rpm_client import Client
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpm_client.async_client import AsyncClient
    from rpm_client.client import Client
    from rpm_client.errors import RefusedError, UnreachableError
    from rpm_client.functions import ResourceSettings, TaskError
    from rpm_client.futures import TaskFuture

__all__ = [
    "AsyncClient",
    "Client",
    "RefusedError",
    "ResourceSettings",
    "TaskError",
    "TaskFuture",
    "UnreachableError",
]
# `rpmctl --help` needs no HTTP: what takes long to import comes when it is used.
_HOMES = {
    "AsyncClient": "rpm_client.async_client",
    "Client": "rpm_client.client",
    "RefusedError": "rpm_client.errors",
    "ResourceSettings": "rpm_client.functions",
    "TaskError": "rpm_client.functions",
    "TaskFuture": "rpm_client.futures",
    "UnreachableError": "rpm_client.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
