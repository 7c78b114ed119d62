"""What a profile may allow beyond the usual."""

import pytest

from apps.policies.extras import Extras, extras_of, problem_of


def test_permissions_are_sorted_out() -> None:
    found = extras_of(["device:/dev/infiniband/uverbs0", "root", "capability:IPC_LOCK", "root"])

    assert found == Extras(
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
    assert problem_of(permission)
    assert extras_of([permission]) == Extras()
