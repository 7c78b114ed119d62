"""Whether a node starts tasks: tried before it is added, while it serves, after failed starts.

A node that fails three times in a row is drained until it passes; what could not start there waits
again.
"""

import time
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import structlog
from django.db import transaction

from apps.core.notifications import after_commit
from apps.events.services import event_record
from apps.execution.client import NodeClient
from apps.execution.container_specs import NOBODY
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import AllocatedDevice, PreflightRequest, RuntimeName
from apps.nodes.models import Device, DeviceState, Node, Runtime
from apps.nodes.services import node_drain, node_resume

log = structlog.get_logger(__name__)

DRAINS_AFTER = 3
# A check that passed is valid for so long: tasks whose own commands fail cost the node no more.
PASSED_FOR_S = 10.0
_RUNTIMES: dict[str, RuntimeName] = {
    Runtime.PODMAN: "podman",
    Runtime.DOCKER: "docker",
    Runtime.PROCESS: "process",
}
_passed_at: WeakKeyDictionary[NodeClient, float] = WeakKeyDictionary()


def given_device(node: Node) -> AllocatedDevice | None:
    """A healthy device of the node that its runtime can hand over; None: it has none."""
    known = Device.objects.filter(node=node, state=DeviceState.HEALTHY).exclude(cdi="")
    device = known.order_by("index").first()
    return AllocatedDevice(device.uuid, device.cdi) if device is not None else None


def node_preflight(client: NodeClient, node: Node, *, devices: Iterable[AllocatedDevice]) -> str:
    """Have the node start a container, or a process; its words where it cannot, else empty.

    A node that does not answer is the heartbeat's business: nothing is said of its runtime.
    """
    outcome = client.preflight(
        PreflightRequest(
            installation=client.installation,
            runtime=_RUNTIMES[node.runtime],
            allow_process=node.allows_process,
            devices=tuple(devices),
            uid=NOBODY,
            gid=NOBODY,
        )
    )
    if not isinstance(outcome, Answered):
        log.info("preflight.not_answered", detail=outcome.detail)
        return ""
    if outcome.answer.state == "passed":
        _passed_at[client] = time.monotonic()
        return ""
    return outcome.answer.detail or "no words"


def node_preflight_again(node: Node, client: NodeClient) -> str:
    """The same for a node that serves; a check that has just passed is not repeated."""
    if time.monotonic() - _passed_at.get(client, float("-inf")) < PASSED_FOR_S:
        return ""
    device = given_device(node)
    devices = () if device is None else (device,)
    return node_preflight(client, node, devices=devices)


@transaction.atomic
def preflight_note(node_id: int, detail: str) -> None:
    """Count failures in a row, report the first, drain the node at the third, resume it at a pass.

    The third is counted only where it drains: what an administrator drained stays so.

    Args:
        detail: the runtime's words; empty: it passed.
    """
    row = Node.objects.select_for_update().get(pk=node_id)
    before, is_ours = row.preflight_failures, row.preflight_failures == DRAINS_AFTER
    if not detail and not before:
        return
    most = DRAINS_AFTER if is_ours or not row.is_draining else DRAINS_AFTER - 1
    row.preflight_failures = min(before + 1, most) if detail else 0
    row.preflight_detail = detail[:1000]
    row.save(update_fields=["preflight_failures", "preflight_detail"])
    if bool(before) != bool(detail):
        kind = "node.preflight_failed" if detail else "node.preflight_passed"
        data = {"detail": row.preflight_detail}
        event_record(kind, actor=None, object_type="node", object_id=node_id, data=data)
        after_commit(topics=["nodes"])
    if is_ours and not detail:
        node_resume(actor=None, node=row, ends={"drain"})
    elif not is_ours and row.preflight_failures == DRAINS_AFTER:
        what = "process" if row.runtime == Runtime.PROCESS else "container"
        words = f"It failed to start a {what} {DRAINS_AFTER} times in a row: {detail}"
        node_drain(actor=None, node=row, reason=words[:500])
