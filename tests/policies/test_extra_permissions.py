"""What a profile may allow beyond the usual."""

import pytest

from apps.policies.extra_permissions import (
    ExtraPermissions,
    extra_permissions_of,
    permission_problem,
)


def test_permissions_are_sorted_out() -> None:
    found = extra_permissions_of(
        ["device:/dev/infiniband/uverbs0", "root", "capability:IPC_LOCK", "root"]
    )

    assert found == ExtraPermissions(
        is_root=True,
        capabilities=("IPC_LOCK",),
        device_paths=("/dev/infiniband/uverbs0",),
    )


@pytest.mark.parametrize(
    "permission",
    [
        "privileged", "capability:SYS_ADMIN", "capability:ALL", "capability:", "device:/etc/shadow",
        "device:/dev/../etc/shadow", "device:/dev", "device:/dev/a:/dev/b", "ROOT", "",
    ],
)  # fmt: skip
def test_what_would_open_the_node_is_none(permission: str) -> None:
    assert permission_problem(permission)
    assert extra_permissions_of([permission]) == ExtraPermissions()
