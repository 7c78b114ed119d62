"""Streams into running tasks: who may open one, and what the audit log says of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from msgspec import Meta, Struct

from apps.accounts.memberships import with_groups_of_now
from apps.accounts.models import Scope, User
from apps.core.errors import BadInput, Conflict, NotAllowed, RpmError
from apps.events.services import audit_record
from apps.execution.connections import client_for, installation_key
from apps.execution.protocol.requests import StreamKind, StreamRequest, TerminalSize
from apps.execution.services.node_registration import NodeFailed
from apps.execution.transport.base import TransportError
from apps.execution.transport.local import LocalTransport
from apps.execution.transport.ssh import SshTransport
from apps.execution.transport.streams import NodeStream, StreamRefused, stream_open
from apps.nodes.models import Node
from apps.tasks.lifecycle.states import MemberState, TaskState
from apps.tasks.models import Member, Task
from apps.tasks.selectors.visibility import visible_task
from apps.tasks.services.queues import check_can_manage_task

OPENED: Final = "stream.opened"
ENDED: Final = "stream.ended"
NOT_RUNNING: Final = "The task does not run: its state is {state}."


class WantedStream(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user asks for; the node checks each argument again."""

    kind: StreamKind
    command: Annotated[tuple[str, ...], Meta(max_length=4096)] = ()
    rank: Annotated[int, Meta(ge=0, le=99_999)] = 0
    columns: TerminalSize = 80
    rows: TerminalSize = 24
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """The member that a stream is for, and what the audit log needs of it."""

    actor: User
    task: Task
    node: Node
    request: StreamRequest
    started_at: datetime


def stream_target(
    *, actor: User, scope: Scope, task_id: UUID, wanted: WantedStream
) -> StreamTarget:
    """The member of the running attempt; written into the audit log.

    Args:
        scope: of the actor's credential; as in REST, tasks of others need `administer`.

    Raises:
        BadInput: there is no command to run, or no port to connect to.
        NotFound: there is no such task, or the actor may not see it.
        NotAllowed: the actor neither owns the task nor manages its queue, or the credential is for
            own tasks.
        Conflict: this member does not run, or its queue, profile or installation has no streams.
    """
    if not settings.STREAMS:
        raise Conflict("This installation has no streams: RPM_STREAMS is 0.")
    if wanted.kind == "exec" and not wanted.command:
        raise BadInput("command is empty.", fields={"command": "is empty"})
    if wanted.kind == "port" and not wanted.port:
        raise BadInput("port is missing.", fields={"port": "is missing: 1 to 65535"})
    task = visible_task(actor, task_id)
    check_can_manage_task(actor, task)
    if task.owner_id != actor.pk and not scope.covers(Scope.ADMINISTER):
        raise NotAllowed("This is a task of another user: it needs the scope administer.")
    switched_off = _switched_off(task)
    if switched_off:
        raise Conflict(f"{switched_off} has streams switched off (allow_streams).")
    member = _running_member(task, wanted.rank)
    if member is None or member.node is None:
        raise Conflict(NOT_RUNNING.format(state=task.get_state_display()))
    request = StreamRequest(
        installation=installation_key(),
        task_id=str(task.pk),
        generation=task.generation,
        rank=wanted.rank,
        kind=wanted.kind,
        command=wanted.command,
        columns=wanted.columns,
        rows=wanted.rows,
        port=wanted.port,
    )
    target = StreamTarget(actor, task, member.node, request, timezone.now())
    _record(OPENED, target)
    return target


def stream_holds(target: StreamTarget) -> bool:
    """Whether the actor may still have it, and the attempt still runs."""
    # What is remembered of the actor's groups is as old as the stream.
    actor = with_groups_of_now(target.actor)
    try:
        task = visible_task(actor, target.task.pk)
        check_can_manage_task(actor, task)
    except RpmError:
        return False
    if _switched_off(task):
        return False
    is_same = task.generation == target.request.generation
    return is_same and _running_member(task, target.request.rank) is not None


def stream_ended(target: StreamTarget, *, received_bytes: int, sent_bytes: int) -> None:
    """Write its end into the audit log: how long it was, and how much it carried.

    Args:
        received_bytes: from the user.
        sent_bytes: to the user.
    """
    seconds = (timezone.now() - target.started_at).total_seconds()
    _record(
        ENDED,
        target,
        duration_s=round(seconds, 1),
        received_bytes=received_bytes,
        sent_bytes=sent_bytes,
    )


def stream_begin(target: StreamTarget) -> NodeStream:
    """Begin it on the node, over a connection of its own; nothing of the database is used.

    Raises:
        NodeFailed: with the node's own words.
    """
    transport = None
    try:
        transport = client_for(target.node, installation=target.request.installation).transport
        assert isinstance(transport, SshTransport | LocalTransport)  # noqa: S101  # there are no others
        return stream_open(transport, target.request, is_own=True)
    except (TransportError, StreamRefused) as error:
        if transport is not None:
            transport.close()
        raise NodeFailed(str(error)) from error


def _switched_off(task: Task) -> str:
    """The queue or profile of the task that allows no streams; empty where both do."""
    queue = task.queue
    if queue is None or (queue.allow_streams and queue.profile.allow_streams):
        return ""
    return f"Profile {queue.profile.name}" if queue.allow_streams else f"Queue {queue.name}"


def _running_member(task: Task, rank: int) -> Member | None:
    if task.state not in (TaskState.RUNNING, TaskState.STOPPING):
        return None
    members = Member.objects.filter(
        attempt__task=task.pk,
        attempt__generation=task.generation,
        rank=rank,
        state=MemberState.RUNNING,
        released_at__isnull=True,
    )
    return members.select_related("node").first()


def _record(verb: str, target: StreamTarget, **facts: float) -> None:
    """Who, which task, which kind; never what it carried, the command included."""
    audit_record(
        verb,
        actor=target.actor,
        object_type="task",
        object_id=target.task.pk,
        data={
            "name": target.task.name,
            "kind": target.request.kind,
            "rank": target.request.rank,
            "node": target.node.name,
            **({"port": target.request.port} if target.request.port else {}),
            **facts,
        },
    )
