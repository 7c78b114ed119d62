"""Changing how a node is reached, and its key: tried first, then written."""

from collections.abc import Mapping
from copy import copy
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import BadInput, Conflict
from apps.execution.connections import pinned_key
from apps.execution.selectors import members_launched
from apps.execution.services.node_registration import (
    node_check,
    node_clean,
    refuse_known_devices,
    refuse_known_machine,
)
from apps.execution.services.node_removal import tasks_named, tasks_on
from apps.execution.transport.host_keys import HostKey
from apps.nodes.models import Node, Runtime, Transport
from apps.nodes.services import REACHED_BY, node_change
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.members.exits import member_note_exit

# With these the helper would not find what it has started.
ONLY_WHEN_EMPTY = frozenset({"user", "runtime", "environment", "state_dir"})
# With these the helper has another folder.
ANOTHER_FOLDER = frozenset({"user", "state_dir"})


def node_edit(*, actor: User | None, node: Node, values: Mapping[str, Any]) -> Node:
    """Change a node. Another address, port, account, key or runtime is tried before it is kept.

    Raises:
        BadInput: naming the field.
        Conflict: it is another machine there, or work there would be lost sight of.
        NodeFailed: the machine was not reached or is not fit; nothing was changed.
    """
    changed = {name for name in values if values[name] != getattr(node, name)}
    kept = {name: values[name] for name in changed}
    if "allows_process" in changed and values.get("runtime", node.runtime) == Runtime.PROCESS:
        _refuse_idle(values)
    if not changed & REACHED_BY:
        return node_change(actor=actor, node=node, values=kept) if kept else node
    if node.transport != Transport.SSH:
        field = min(changed & REACHED_BY)
        raise BadInput(f"{field} is for nodes over SSH.", fields={field: "is for nodes over SSH"})
    candidate = _changed_copy(node, kept)
    tasks = tasks_on(node) if changed & ONLY_WHEN_EMPTY else []
    if tasks:
        field = min(changed & ONLY_WHEN_EMPTY)
        words = f"{field} can be changed when nothing runs on the node: {tasks_named(tasks)}."
        raise Conflict(words, fields={field: words})
    if changed & ANOTHER_FOLDER:
        candidate.identity = ""
    return _test_and_save(actor, node, candidate, kept)


def _refuse_idle(values: Mapping[str, Any]) -> None:
    """Raises BadInput where a node that starts processes alone would start none any more."""
    if not values["allows_process"]:
        problem = "must stay: the node runs tasks without a container only (runtime process)"
        raise BadInput(f"allows_process {problem}.", fields={"allows_process": problem})


def node_rekey(
    *,
    actor: User | None,
    node: Node,
    host_key: HostKey,
    is_replaced: bool = False,
    reason: str = "",
) -> Node:
    """Pin another host key, the one that an administrator has compared with the machine's own.

    Args:
        is_replaced: the machine was set up again, or is another one: what ran on the old one is
            lost, and its queues say what happens then.
        reason: needed with `is_replaced` while tasks are on the node: why nothing of them runs
            any more.

    Raises:
        BadInput: it has to be said why nothing runs there any more.
        Conflict: it is another machine than it was, or a node already.
        NodeFailed: the machine was not reached or is not fit; the old key stays.
    """
    if node.transport != Transport.SSH:
        raise BadInput("This machine itself has no host key.", fields={"host_key": "is for SSH"})
    if is_replaced and not reason.strip() and tasks_on(node):
        problem = "must say why you are sure that nothing of its work runs any more"
        raise BadInput(f"reason {problem}.", fields={"reason": problem})
    kept = {"host_key": f"{host_key.kind} {host_key.base64}"}
    candidate = _changed_copy(node, kept)
    if is_replaced:
        candidate.identity = ""
    pinned = pinned_key(node)
    notes = {
        "old_fingerprint": pinned.fingerprint if pinned is not None else "",
        "new_fingerprint": host_key.fingerprint,
        "is_replaced": is_replaced,
        "reason": reason,
    }
    lost = f"node_loss: the node was replaced: {reason or 'nothing ran there'}."
    return _test_and_save(
        *(actor, node, candidate, kept),
        lost=lost if is_replaced else "",
        kind="node.rekeyed",
        notes=notes,
    )


def _changed_copy(node: Node, values: Mapping[str, Any]) -> Node:
    candidate = copy(node)
    for name, value in values.items():
        setattr(candidate, name, value)
    node_clean(candidate)
    return candidate


def _test_and_save(
    actor: User | None,
    node: Node,
    candidate: Node,
    values: Mapping[str, Any],
    *,
    lost: str = "",
    **audit: Any,
) -> Node:
    """Keep the changes once the machine has answered with them.

    Args:
        lost: why what was launched on the node is lost by now; empty: it is not.
    """
    inventory, clocks = node_check(candidate, is_kept=False, starts_container=True)
    refuse_known_devices(candidate, inventory)
    is_moved = (clocks.boot_id, inventory.machine_id) != (
        node.boot_id,
        node.report.get("machine_id"),
    )
    if is_moved and candidate.identity != node.identity and not node.is_simulated:
        refuse_known_machine(candidate, inventory, clocks)
    found = {"helper_home": candidate.helper_home, "identity": candidate.identity}
    with transaction.atomic():
        changed = node_change(actor=actor, node=node, values=values, found=found, **audit)
        if lost:
            for member_id in members_launched(node.pk):
                member_note_exit(member_id=member_id, ended=MemberResult(None, lost, is_lost=True))
    return changed
