"""Removing a node: its work ends first, so that nothing is lost or doubled."""

from collections.abc import Collection
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import User
from apps.core.errors import BadInput, Conflict
from apps.events.selectors import last_event
from apps.events.services import audit_record
from apps.nodes.models import Node, NodeState
from apps.nodes.services import node_ask_removal, node_declare_off, node_drop
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, TaskState
from apps.tasks.models import Member, Task
from apps.tasks.services.attempts.ends import attempt_stop
from apps.tasks.services.members.exits import members_acknowledge

NAMED = 10
_REMOVAL_PENDING = Q(removal_asked_at__isnull=False, removed_at__isnull=True)


def tasks_on(node: Node) -> list[Task]:
    """The tasks that hold anything of the node, oldest first."""
    held = Member.objects.filter(node=node, released_at__isnull=True)
    tasks = Task.objects.filter(pk__in=held.values("attempt__task_id"))
    return list(tasks.select_related("owner").order_by("submitted_at", "pk"))


def tasks_named(tasks: list[Task]) -> str:
    """Their names in a sentence, the first of many."""
    more = f" and {len(tasks) - NAMED} more" if len(tasks) > NAMED else ""
    return ", ".join(task.name for task in tasks[:NAMED]) + more


@transaction.atomic
def node_remove(
    *,
    actor: User | None,
    node: Node,
    is_forced: bool = False,
    reason: str = "",
    shown: Collection[UUID] | None = None,
) -> Node:
    """Remove a node on which nothing runs; forced: stop what runs there, then remove it.

    Where a node answers, its tasks are stopped with their grace period and wait again. A node that
    does not answer is declared switched off: its tasks are lost, and their queues say what then.

    Args:
        reason: needed where the node does not answer: why it is certainly off.
        shown: the tasks that the actor was shown and agreed to stop; None for any.

    Returns:
        The node: removed, or with its removal asked for.

    Raises:
        Conflict: tasks run there, or others than `shown`; it names them.
        BadInput: it has to be said why the machine is off, or it is said of one that answers.
    """
    # Until this ends no process serves the node: what a pass places there now was never launched.
    Node.objects.select_for_update().get(pk=node.pk)
    tasks = tasks_on(node)
    notes = {"is_forced": is_forced, "reason": reason, "stops": [str(task.pk) for task in tasks]}
    if not tasks:
        return _drop(actor, node, notes)
    if not is_forced:
        words = (
            f"{len(tasks)} {'task holds' if len(tasks) == 1 else 'tasks hold'} something of node "
            f"{node.name}: {tasks_named(tasks)}. "
            "Drain the node and wait, or force the removal, which stops them."
        )
        raise Conflict(words, fields={"force": words})
    if shown is not None:
        _refuse_others(node, [task for task in tasks if task.pk not in shown])
    problem = _problem_of_reason(node, reason)
    if problem:
        raise BadInput(f"reason {problem}.", fields={"reason": problem})
    if node.state != NodeState.HEALTHY:
        node_declare_off(actor=actor, node=node, reason=reason)
    return node_ask_removal(actor=actor, node=node, notes=notes)


def _problem_of_reason(node: Node, reason: str) -> str:
    """What is wrong with it; empty: nothing."""
    if node.state != NodeState.HEALTHY and not reason.strip():
        return "must say why you are sure that the machine is off: the node does not answer"
    if node.state == NodeState.HEALTHY and reason.strip():
        # Kept for later, it could declare off a machine that only lost its network.
        return (
            "is for a node that does not answer, and this one counts as healthy: if the machine "
            "is off, wait until the node is suspect (30 seconds) and force the removal again; "
            "if it is on, leave the reason out, and its tasks are stopped"
        )
    return ""


def _refuse_others(node: Node, others: list[Task]) -> None:
    """Raises Conflict where a removal would stop tasks that the actor was not shown."""
    if not others:
        return
    count = "1 more task has" if len(others) == 1 else f"{len(others)} more tasks have"
    words = (
        f"Nothing was stopped: {count} started on node {node.name} since you were shown its "
        f"tasks: {tasks_named(others)}. Read the list again and confirm it."
    )
    raise Conflict(words, fields={"force": words})


def nodes_remove_drained() -> None:
    """Carry on with removals that were asked for; any process may, as often as it likes."""
    for pk in Node.objects.filter(_REMOVAL_PENDING).values_list("pk", flat=True):
        with transaction.atomic():
            node = Node.objects.select_for_update().filter(_REMOVAL_PENDING, pk=pk).first()
            if node is None:
                continue
            if not tasks_on(node):
                _finish(node)
            elif node.off_at is None:
                _stop(node)


def _finish(node: Node) -> None:
    """Remove it in the name of the user who asked for it, so that the audit log says so."""
    notes: dict[str, object] = {"is_forced": True}
    asked = last_event("node.removal_asked", node.pk)
    actor = asked.actor if asked is not None else None
    _drop(actor, node, notes)
    if actor is None:
        data = {"name": node.name, **notes}
        audit_record("node.removed", actor=None, object_type="node", object_id=node.pk, data=data)


def _drop(actor: User | None, node: Node, notes: dict[str, object]) -> Node:
    """Remove it. Results that it has not heard of are acknowledged if it ever comes back."""
    unacknowledged = Member.objects.filter(node=node, is_acknowledged=False)
    members_acknowledge(unacknowledged.values_list("pk", flat=True))
    return node_drop(actor=actor, node=node, notes=notes)


def _stop(node: Node) -> None:
    """Ask the tasks on the node to end; the node reports when they have."""
    live = Member.objects.filter(
        node=node, released_at__isnull=True, attempt__state__in=LIVE_ATTEMPT_STATES
    )
    found: dict[UUID, bool] = dict(live.values_list("attempt_id", "attempt__task__is_restartable"))
    for attempt_id, is_restartable in found.items():
        target = TaskState.QUEUED if is_restartable else TaskState.ABORTED
        # Its name could name a pool that the owner does not see; the attempt shows it.
        words = "Its node is being removed."
        attempt_stop(attempt_id=attempt_id, target=target, detail=words)
