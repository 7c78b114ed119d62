"""Attempts and their members, brought to where a test begins."""

from typing import Any

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.policies.models import Profile
from apps.tasks.models import Attempt, HeldDevice, Holding, Task
from apps.tasks.services.attempts import (
    member_claim_start,
    member_started,
)
from tests.allocation.state import enqueue
from tests.cast import Example


def admitted(actor: User, example: Example, **changes: Any) -> Attempt:
    """One task that was given its place."""
    (task,) = enqueue(actor, example.dev_queue, **changes)
    run_pass()
    return Attempt.objects.get(task=task)


def gang(actor: User, example: Example, **changes: Any) -> tuple[Attempt, Holding, Holding]:
    """A task of two members of four GPUs each, both with their place."""
    Profile.objects.filter(pk=example.profile.pk).update(replicas=2)
    attempt = admitted(actor, example, **changes)
    first, second = attempt.holdings.order_by("rank")
    return attempt, first, second


def member(attempt: Attempt) -> Holding:
    return attempt.holdings.get()


def running(attempt: Attempt) -> Holding:
    """The attempt's members were launched and run."""
    for holding in attempt.holdings.all():
        assert member_claim_start(holding_id=holding.pk, token="t")
        assert member_started(holding_id=holding.pk, at=timezone.now())
    return attempt.holdings.order_by("rank")[0]


def seen(attempt: Attempt) -> tuple[str, str]:
    """The states of the attempt and of its task."""
    attempt.refresh_from_db()
    return str(attempt.state), str(Task.objects.get(pk=attempt.task_id).state)


def is_released(attempt: Attempt) -> bool:
    """Whether it holds nothing any more, in the ledger and of devices."""
    held = HeldDevice.objects.filter(holding__attempt=attempt, released_at__isnull=True)
    return not held.exists() and not attempt.holdings.filter(released_at__isnull=True).exists()
