"""Adding a node keeps it whole, or leaves nothing."""

from pathlib import Path

import pytest

from apps.core.errors import BadInput
from apps.execution.services.node_registration import NodeFailed, SimulatedGpus, node_add
from apps.nodes.models import Device, Node, Runtime, Transport
from tests.people import Example
from tests.services.sshd import kill_helpers

pytestmark = pytest.mark.django_db


def test_a_node_of_this_machine_is_kept_with_its_devices_and_served_by_nobody_yet(
    example: Example, tmp_path: Path
) -> None:
    node = node_add(
        name="here",
        pool=example.h100,
        actor=None,
        simulated=SimulatedGpus(count=2),
        transport=Transport.LOCAL,
        runtime=Runtime.PROCESS,
        allows_process=True,
        state_dir=str(tmp_path / "node"),
    )

    node.refresh_from_db()
    assert (node.state, node.served_by) == ("healthy", "")
    assert node.capacity["gpu"] == "2"
    kill_helpers(node.helper_home)


@pytest.mark.parametrize("pattern", ["vendor/gpu={foo}", "vendor/gpu={", "vendor/gpu={}"])
def test_a_bad_pattern_is_refused_and_leaves_nothing(example: Example, pattern: str) -> None:
    with pytest.raises(BadInput) as caught:
        node_add(
            name="here",
            pool=example.h100,
            actor=None,
            simulated=SimulatedGpus(count=2, cdi=pattern),
            transport=Transport.LOCAL,
        )

    assert list(caught.value.fields) == ["simulated_cdi"]
    assert not Node.objects.exists()


def test_a_machine_that_cannot_hold_the_helper_leaves_nothing(
    example: Example, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(NodeFailed):
        node_add(
            name="here",
            pool=example.h100,
            actor=None,
            simulated=SimulatedGpus(count=2),
            transport=Transport.LOCAL,
            state_dir=str(tmp_path / "file" / "node"),
        )

    assert not Node.objects.exists()
    assert not Device.objects.exists()
