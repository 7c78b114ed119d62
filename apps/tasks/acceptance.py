"""Whether a queue takes a task, judged on plain data; pure.

The standard path and the fast path (`services/enqueue/fast_path.py`) both call `accept`, so that
they cannot answer differently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from apps.core.errors import BadInput, NeverFits
from apps.core.images import ImageName
from apps.core.units import quantities_milli
from apps.policies.images import is_allowed
from apps.tasks.feasibility import EmptyPool, PolicyBounds, feasibility_problems
from apps.tasks.shapes import TaskShape
from apps.tasks.task_spec import PRIORITY, TaskSpec, check_can_start, refuse, request_texts


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What decides whether a queue takes a task.

    `request`, `request_min` and `request_max` are texts per key, of the profile; `volumes` are the
    live ones that the profile allows; `images` the patterns of each pool that has some; with
    `needs_image` a node of the queue runs containers; `version` is that of the live configuration;
    `exceeding` are ids of users whose preemptible tasks skip the limit of the queue's own policy.
    """

    queue_id: int
    name: str
    policy_id: int
    version: int
    max_priority: int
    max_waiting: int | None
    request: Mapping[str, str]
    replicas: int
    is_dynamic: bool
    request_min: Mapping[str, str]
    request_max: Mapping[str, str]
    keys: frozenset[str]
    volumes: frozenset[str]
    policy_bounds: tuple[PolicyBounds, ...]
    empty_pools: tuple[EmptyPool, ...]
    images: tuple[tuple[str, ...], ...] = ()
    needs_image: bool = False
    exceeding: frozenset[int] = frozenset()

    @property
    def has_user_limit(self) -> bool:
        return any(bounds.user_limit for bounds in self.policy_bounds)


@dataclass(frozen=True, slots=True)
class Mounts:
    """The volumes of a queue that the owner of a task may mount now; empty for one without any.

    `may_write` says of each whether the task may write there; `shown` are those of which an error
    may tell the user who asks.
    """

    may_write: Mapping[str, bool]
    shown: frozenset[str] = frozenset()


NO_MOUNTS = Mounts({})


def accept(spec: TaskSpec, facts: QueueFacts, *, owner_id: int, mounts: Mounts) -> TaskShape:
    """The shape with which the task waits in the queue.

    Args:
        mounts: as of now (`selectors.mounts`); the facts may be remembered, and know no users.

    Raises:
        BadInput: a field does not suit this queue.
        NeverFits: it could never run; `fields` holds the numbers.
    """
    check_can_start(spec)
    refuse({**_against_queue(spec, facts), **_volumes(spec, facts, mounts)})
    own_request = None
    if spec.request is not None:
        own_request = _own_request(spec, facts)
    request = quantities_milli(facts.request if own_request is None else own_request)
    exceeds_limit = spec.is_preemptible and owner_id in facts.exceeding
    problems = feasibility_problems(
        request=request,
        replicas=spec.replicas or facts.replicas,
        is_preemptible=spec.is_preemptible,
        policy_bounds=_without_own_limit(facts.policy_bounds)
        if exceeds_limit
        else facts.policy_bounds,
        empty_pools=facts.empty_pools,
    )
    if problems:
        numbers = "; ".join(f"{field} {problem}" for field, problem in problems.items())
        raise NeverFits(f"This task could never run: {numbers}.", fields=problems)
    return TaskShape(
        request=own_request,
        replicas=spec.replicas,
        priority=spec.priority,
        is_preemptible=spec.is_preemptible,
        user_id=owner_id if facts.has_user_limit else None,
        exceeds_limit=exceeds_limit,
    )


def _without_own_limit(policy_bounds: tuple[PolicyBounds, ...]) -> tuple[PolicyBounds, ...]:
    return (*(replace(one, limit={}) for one in policy_bounds[:1]), *policy_bounds[1:])


def _against_queue(spec: TaskSpec, facts: QueueFacts) -> dict[str, str]:
    problems = {}
    if spec.priority > facts.max_priority:
        problems["priority"] = (
            f"is {spec.priority}: it must lie between {-PRIORITY} and {facts.max_priority} in "
            f"queue {facts.name}"
        )
    return {**problems, **_image(spec, facts)}


def _volumes(spec: TaskSpec, facts: QueueFacts, mounts: Mounts) -> dict[str, str]:
    """A volume that the owner may not mount reads like one that does not exist."""
    problems, allowed = {}, facts.volumes & mounts.may_write.keys()
    listed = ", ".join(sorted(allowed & mounts.shown)) or "none"
    unknown = [name for name in spec.volumes if name not in allowed]
    if unknown:
        problems["volumes"] = f"names {unknown[0]!r}, but this queue allows: {listed}"
    saved = spec.checkpoint_volume
    if saved and saved not in allowed:
        problems["checkpoint_volume"] = f"names {saved!r}, but this queue allows: {listed}"
    elif saved and not mounts.may_write[saved]:
        problems["checkpoint_volume"] = f"names {saved!r}, which the owner may only read"
    return problems


def _image(spec: TaskSpec, facts: QueueFacts) -> dict[str, str]:
    """A pass may place the task on any node of the queue, so every node must run its image."""
    if not spec.image:
        words = "is missing: nodes of this queue run containers"
        return {"image": words} if facts.needs_image else {}
    image = ImageName.parse(spec.image)
    refusing = [one for one in facts.images if not is_allowed(image, one)]
    if not refusing:
        return {}
    return {"image": f"is not allowed in this queue, only: {', '.join(refusing[0])}"}


def _own_request(spec: TaskSpec, facts: QueueFacts) -> dict[str, str]:
    """The task's own request, between the least and the most of a dynamic profile."""
    texts = request_texts(spec, keys=facts.keys)
    if not facts.is_dynamic:
        if texts == dict(facts.request):
            return texts
        raise BadInput(
            "request is fixed by the profile of this queue: leave it out.",
            fields={"request": "is fixed by the profile of this queue: leave it out"},
        )
    amounts = quantities_milli(texts)
    least, most = quantities_milli(facts.request_min), quantities_milli(facts.request_max)
    problems = {}
    for key in sorted(amounts.keys() | least.keys()):
        amount = amounts.get(key, 0)
        if amount < least.get(key, 0):
            problems[f"request.{key}"] = f"must be at least {facts.request_min[key]}"
        elif key in most and amount > most[key]:
            problems[f"request.{key}"] = f"must be at most {facts.request_max[key]}"
        elif key not in most and key not in facts.request:
            problems[f"request.{key}"] = "is not a key of this profile"
    refuse(problems)
    return texts
