"""What a reader learns of a task that a rule shows alone, and whom a rule may name."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone
from rest_framework.test import APIClient

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.accounts.selectors import people_managed_by
from apps.accounts.services.people import user_create
from apps.allocation.explanation import ReaderNames
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.core.errors import BadInput
from apps.dashboard.cards.tasks import (
    TaskSummaryCard,
    TaskTimeline,
    load_task_summary,
    load_task_timeline,
)
from apps.events.models import Event
from apps.nodes.models import Node
from apps.tasks.models import Attempt, Member, Task
from tests.configuration.test_task_rules import RULES, TASKS, share, submit
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db
As = Callable[[User], APIClient]


@pytest.fixture
def shared(example: Example, alice: User, charlie: User, root: User) -> Task:
    """A task of alice's that charlie, who sees the H100 pool, reads by a rule."""
    task = submit(alice, example.dev_queue)
    share(root, task, charlie)
    pool = Target(RuleKind.POOL, str(example.h100.pk))
    rule_grant(actor=root, target=pool, level=Level.READ, subjects=RuleSubjects(users=(charlie,)))
    return task


@pytest.fixture
def attempt(shared: Task, example: Example, charlie: User) -> Attempt:
    """It runs over quota, and is to stop for a task of Research."""
    now = timezone.now()
    Task.objects.filter(pk=shared.pk).update(state="allocated", generation=1)
    Task.objects.filter(pk=shared.pk).update(state="running")
    beneficiary = Attempt.objects.create(
        task=submit(charlie, example.research_queue, "theirs"),
        generation=1,
        queue=example.research_queue,
        policy=example.research,
        pool=example.h100,
        allocated_at=now,
    )
    return Attempt.objects.create(
        task=shared,
        generation=1,
        state="running",
        queue=example.dev_queue,
        policy=example.dev,
        pool=example.h100,
        allocated_at=now,
        started_at=now,
        stops_for=beneficiary,
    )


@pytest.mark.parametrize(
    ("kind", "data", "hidden"),
    [
        pytest.param(
            "task.allocated", {"tier": "over_quota", "waits_for": 3}, ("quota", "3"), id="allocated"
        ),
        pytest.param("task.preempted", {"then": "queued"}, ("Research", "for a"), id="preempted"),
        pytest.param("task.queued", {"is_moved": True}, ("another node",), id="queued"),
    ],
)
def test_events_of_a_task_shown_alone_name_no_place_and_no_other_task(
    attempt: Attempt,
    charlie: User,
    example: Example,
    kind: str,
    data: Mapping[str, object],
    hidden: tuple[str, ...],
) -> None:
    Event.objects.create(
        kind=kind,
        object_type="task",
        object_id=str(attempt.task_id),
        data={"generation": 1, "pool": example.h100.pk, **data},
        at=timezone.now(),
        queue_id=example.dev_queue.pk,
    )

    card = load_task_timeline(charlie, str(attempt.task_id))

    assert isinstance(card, TaskTimeline)
    text = " ".join(entry.text for entry in card.entries)
    assert "attempt 1" in text
    for word in (*hidden, example.h100.name, "pool", example.dev_queue.name):
        assert word not in text


def test_attempts_of_a_task_shown_alone_name_neither_pool_nor_node(
    attempt: Attempt, charlie: User, example: Example, api_as: As
) -> None:
    node = Node.objects.create(name="n1")
    Member.objects.create(attempt=attempt, rank=0, node=node, pool=example.h100)

    (row,) = api_as(charlie).get(f"{TASKS}{attempt.task_id}/attempts/").json()
    card = load_task_summary(charlie, str(attempt.task_id))

    assert (row["pool"], row["members"][0]["node"]) == (None, None)
    assert isinstance(card, TaskSummaryCard)
    assert example.h100.name not in card.attempts[0].pool


def test_reasons_of_own_tasks_do_not_name_a_task_shown_alone(shared: Task, charlie: User) -> None:
    reason = {"code": "draining", "details": [{"pool": 1, "tasks": [str(shared.pk)]}]}

    assert ReaderNames.of(charlie, None, [reason]).tasks == {}


def test_a_rule_outside_of_a_tenant_takes_nobody_from_its_administrators(
    organisations: Organisations, root: User
) -> None:
    acme, queue = organisations.acme, organisations.example.dev_queue
    target = Target(RuleKind.QUEUE, str(queue.pk))
    may_enqueue = RuleSubjects(groups=(acme.group,))
    rule_grant(actor=root, target=target, level=Level.MODIFY, subjects=may_enqueue)
    colleague = user_create(username="colleague", password=None, groups=[acme.group.name])
    task = submit(acme.member, queue)

    with pytest.raises(BadInput, match="colleague and the task do not belong to the same tenant"):
        share(acme.member, task, colleague)
    share(acme.member, task, Group.objects.get(pk=acme.group.pk))

    assert colleague in people_managed_by(acme.admin)


@pytest.mark.parametrize(
    "position",
    [
        pytest.param('[Infinity,"a","b"]', id="infinity"),
        pytest.param('[1e400,"",""]', id="a number beyond all floats"),
        pytest.param("[" * 20_000, id="nested without end"),
    ],
)
def test_a_forged_cursor_of_rules_is_named(api_as: As, root: User, position: str) -> None:
    cursor = urlsafe_b64encode(position.encode()).decode()

    answer = api_as(root).get(RULES, {"cursor": cursor})

    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["cursor"])
