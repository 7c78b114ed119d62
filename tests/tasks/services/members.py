"""Attempts and their members, brought to where a test begins."""

from typing import Any

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.policies.models import Profile
from apps.tasks.models import Attempt, HeldDevice, Member, Task
from apps.tasks.services.members.launch import member_claim_start, member_note_start
from tests.allocation.state import enqueue
from tests.people import Example


def admitted(actor: User, example: Example, **changes: Any) -> Attempt:
    """One task that was placed."""
    (task,) = enqueue(actor, example.dev_queue, **changes)
    run_pass()
    return Attempt.objects.get(task=task)


def gang(actor: User, example: Example, **changes: Any) -> tuple[Attempt, Member, Member]:
    """A task of two members of four GPUs each, both placed."""
    Profile.objects.filter(pk=example.profile.pk).update(replicas=2)
    attempt = admitted(actor, example, **changes)
    first, second = attempt.members.order_by("rank")
    return attempt, first, second


def member_of(attempt: Attempt) -> Member:
    return attempt.members.get()


def running(attempt: Attempt) -> Member:
    """The attempt's members were launched and run."""
    for member in attempt.members.all():
        assert member_claim_start(member_id=member.pk, token="t")
        assert member_note_start(member_id=member.pk, at=timezone.now())
    return attempt.members.order_by("rank")[0]


def states_of(attempt: Attempt) -> tuple[str, str]:
    """The states of the attempt and of its task."""
    attempt.refresh_from_db()
    return str(attempt.state), str(Task.objects.get(pk=attempt.task_id).state)


def is_released(attempt: Attempt) -> bool:
    """Whether it holds nothing any more, in the ledger and of devices."""
    held = HeldDevice.objects.filter(member__attempt=attempt, released_at__isnull=True)
    return not held.exists() and not attempt.members.filter(released_at__isnull=True).exists()
