"""What the reader of a waiting task can do so that it starts earlier: tried, not guessed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from apps.access.selectors import queues_open_to
from apps.accounts.models import User
from apps.allocation.explanation import ExpectedStart
from apps.allocation.whatif.queue_starts import QueueStart, task_starts
from apps.core.units import MILLI, milli_text, quantities_milli
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.selectors.eligibility import is_eligible
from apps.tasks.selectors.visibility import task_permissions
from apps.tasks.task_spec import TaskSpec

MOST_OFFERS = 3
# Other queues that are tried, those of the same policy first.
MOST_QUEUES = 5
# A queue in which it starts that much earlier is worth the move.
EARLIER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class StartOffer:
    """One act of the reader, and when the task would start then.

    `kind` names its button: move, priority or edit.
    """

    kind: str
    title: str
    start: QueueStart

    @property
    def queue(self) -> Queue:
        return self.start.queue


def start_offers(user: User, task: Task, expected: ExpectedStart | None) -> tuple[StartOffer, ...]:
    """At most `MOST_OFFERS`, those that start it at once first; nothing is stored."""
    queue = task.queue
    if queue is None or expected is None or expected.basis == "now" or not _may_act(user, task):
        return ()
    spec = _spec(task)
    tries = [
        ("move", f"Move it to {one.name}", one, spec) for one in _other_queues(user, task, queue)
    ]
    tries += [(kind, title, queue, one) for kind, title, one in _variants(user, task, queue, spec)]
    starts = task_starts(
        actor=task.owner, wanted=[(where, one) for _, _, where, one in tries], without=task.pk
    )
    pairs = zip(tries, starts, strict=False)
    offers = [StartOffer(kind, title, start) for (kind, title, _, _), start in pairs]
    helpful = [one for one in offers if _is_earlier(one.start, expected)]
    return tuple(sorted(helpful, key=lambda one: not one.start.count))[:MOST_OFFERS]


def _may_act(user: User, task: Task) -> bool:
    return is_eligible(task) and task_permissions(user, task).manage


def _spec(task: Task) -> TaskSpec:
    """What decides when it starts."""
    return TaskSpec(
        name="new",
        command=["true"],
        request=dict(task.request) if task.request else None,
        replicas=task.spec.replicas,
        priority=task.priority,
        is_preemptible=task.is_preemptible,
        time_limit_s=task.time_limit_s,
    )


def _other_queues(user: User, task: Task, queue: Queue) -> Sequence[Queue]:
    """Open to the reader and to the owner."""
    both = queues_open_to(user).filter(pk__in=queues_open_to(task.owner).values("pk"))
    queues = both.exclude(pk=queue.pk).select_related("policy", "profile").order_by("name")
    own = queue.policy_id
    return sorted(queues, key=lambda one: one.policy_id != own)[:MOST_QUEUES]


def _variants(
    user: User, task: Task, queue: Queue, spec: TaskSpec
) -> Iterator[tuple[str, str, TaskSpec]]:
    """The same task with other values, in its own queue."""
    if task.priority < queue.max_priority:
        higher = msgspec.structs.replace(spec, priority=queue.max_priority)
        yield "priority", f"Give it priority {queue.max_priority}", higher
    # Only drafts change otherwise, those of the reader, and no element of an array.
    if task.owner_id != user.pk or task.array_id is not None:
        return
    if not task.is_preemptible:
        yield "edit", "Let it be preempted", msgspec.structs.replace(spec, is_preemptible=True)
    gpus = quantities_milli(task.request or {}).get("gpu", 0)
    if queue.profile.is_dynamic and gpus >= 2 * MILLI:
        half = milli_text(gpus // MILLI // 2 * MILLI)
        request = {**dict(task.request or {}), "gpu": half}
        words = f"Ask for {half} GPU{'' if half == '1' else 's'}"
        yield "edit", words, msgspec.structs.replace(spec, request=request)


def _is_earlier(start: QueueStart, expected: ExpectedStart) -> bool:
    if start.count:
        return True
    about = start.expected.about if start.expected is not None else None
    if about is None:
        return False
    return expected.about is None or about < expected.about - EARLIER
