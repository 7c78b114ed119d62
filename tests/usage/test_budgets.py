"""Budgets: what a policy may cost in a month, notices, and tasks that wait for the next one."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.explanation import ReaderNames, expected_start, explain_task
from apps.allocation.services import run_pass
from apps.configuration.services.policies import policy_change
from apps.core import clock
from apps.events.models import Event
from apps.policies.budgets import budgets_at
from apps.policies.models import Policy, PolicySpending, Pool
from apps.tasks.models import Attempt, Task
from apps.usage.services.budgets import budgets_update
from apps.usage.services.rates import rate_create
from apps.usage.services.sums import usage_book
from tests.allocation.state import apply, decided, enqueue, latest, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

ApiAs = Callable[[User], APIClient]
HOUR = timedelta(hours=1)
# Four GPUs at 10 an hour from this moment on.
BEGIN = datetime(2026, 11, 10, tzinfo=UTC)


@pytest.fixture
def attempt(example: Example, alice: User, root: User) -> Attempt:
    rate_create(actor=root, price=Decimal("2.5"), valid_from=BEGIN - HOUR)
    Pool.objects.filter(pk=example.h100.pk).update(capacity={"gpu": "32"})
    make_node(example.h100, name="h1", gpus=32)
    [task] = enqueue(alice, example.dev_queue)
    apply(*decided())
    Attempt.objects.update(allocated_at=BEGIN, started_at=BEGIN, request={"gpu": 4000})
    return latest(task)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Set the time of everything that asks for it."""

    def set_to(moment: datetime) -> None:
        monkeypatch.setattr(clock, "now", lambda: moment)
        monkeypatch.setattr(timezone, "now", lambda: moment)

    return set_to


def notices() -> list[tuple[str, str]]:
    events = Event.objects.filter(kind__startswith="policy.budget_").order_by("pk")
    return [(one.kind, one.data["name"]) for one in events]


def spent(policy: Policy, moment: datetime) -> Decimal:
    return budgets_at(moment)[policy.pk].spent


@pytest.mark.parametrize("is_booked", [False, True])
def test_what_runs_counts_up_to_now_and_for_the_policies_above(
    attempt: Attempt, example: Example, root: User, *, is_booked: bool
) -> None:
    parent = Policy.objects.create(name="Department", group=example.dev.group, position=9)
    Policy.objects.filter(pk=example.dev.pk).update(parent=parent)
    for policy in (parent, example.dev, example.research):
        policy_change(actor=root, policy=policy, changes={"budget": Decimal(100)})
    if is_booked:
        usage_book(now=BEGIN + 2 * HOUR)

    budgets_update(now=BEGIN + timedelta(hours=2, minutes=30))

    moment = BEGIN + 3 * HOUR
    assert spent(parent, moment) == spent(example.dev, moment) == Decimal(25)
    assert spent(example.research, moment) == 0


def test_the_next_month_begins_at_nothing(attempt: Attempt, example: Example, root: User) -> None:
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(10)})
    december = datetime(2026, 12, 1, tzinfo=UTC)
    budgets_update(now=december - timedelta(minutes=1))
    assert spent(example.dev, december) == 0
    budgets_update(now=december + timedelta(minutes=30))
    assert spent(example.dev, december) == Decimal(5), "half an hour of this month"
    usage_book(now=december + HOUR)
    budgets_update(now=december + 2 * HOUR)

    assert notices() == [("policy.budget_spent", "Dev")] * 2


def test_notices_come_once_until_the_budget_is_raised(
    attempt: Attempt, example: Example, root: User
) -> None:
    def run(hours: float) -> list[str]:
        budgets_update(now=BEGIN + hours * HOUR)
        budgets_update(now=BEGIN + hours * HOUR)
        return [kind.partition("_")[2] for kind, _ in notices()]

    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(100)})
    assert run(7.9) == []
    assert run(8) == ["low"]
    assert run(9.9) == ["low"]
    assert run(10) == ["low", "spent"]
    # An end that arrives late is subtracted.
    Attempt.objects.update(ended_at=BEGIN + 7 * HOUR)
    assert run(11) == ["low", "spent"]
    Attempt.objects.update(ended_at=None)
    assert run(12) == ["low", "spent"]
    # Removed and set again, it is the same.
    policy_change(actor=root, policy=example.dev, changes={"budget": None})
    assert run(12.5) == ["low", "spent"]
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(90)})
    assert run(13) == ["low", "spent"]
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(150)})
    assert run(13) == ["low", "spent"], "raised, of which 80 % are known to be spent"
    assert run(15) == ["low", "spent", "spent"]
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(300)})
    assert run(23) == ["low", "spent", "spent"]
    assert run(24) == ["low", "spent", "spent", "low"]


def test_a_run_that_began_earlier_changes_nothing(
    attempt: Attempt, example: Example, root: User
) -> None:
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(10)})
    budgets_update(now=BEGIN + HOUR)
    budgets_update(now=BEGIN)

    assert spent(example.dev, BEGIN) == Decimal(10)
    assert notices() == [("policy.budget_spent", "Dev")]


def test_tasks_wait_for_the_next_month_or_a_higher_budget(
    attempt: Attempt,
    example: Example,
    alice: User,
    charlie: User,
    root: User,
    at: Callable[[datetime], None],
) -> None:
    at(BEGIN + HOUR)
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(10)})
    [task] = enqueue(alice, example.dev_queue)
    [other] = enqueue(charlie, example.research_queue)
    budgets_update()
    run_pass()
    # It only says so, until it stops starts.
    assert Attempt.objects.filter(task=task).exists()
    policy_change(actor=root, policy=example.dev, changes={"budget_stops": True})
    [task] = enqueue(alice, example.dev_queue)
    run_pass()

    found = explain_task(alice, Task.objects.get(pk=task.pk))
    assert found.code == "budget"
    assert found.reasons[0].sentence == "Budget of Dev for November: 10.00 of 10.00 EUR spent."
    assert found.reasons[0].help == "Starts on 1 December or when an administrator raises it."
    expected = expected_start(Task.objects.get(pk=task.pk))
    assert expected is not None
    assert (expected.basis, expected.earliest) == ("not_in_sight", None)
    assert Attempt.objects.filter(task=other).exists(), "others go on"
    assert latest(attempt.task).ended_at is None, "and so does what runs"

    at(datetime(2026, 12, 1, tzinfo=UTC))
    assert len(decided()[1].placed) == 1
    at(BEGIN + HOUR)
    assert not decided()[1].placed
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal("10.01")})
    assert len(decided()[1].placed) == 1


def test_amounts_are_for_those_who_see_the_costs(
    attempt: Attempt, example: Example, alice: User, root: User, at: Callable[[datetime], None]
) -> None:
    at(BEGIN + HOUR)
    parent = Policy.objects.create(name="Department", group=example.research.group, position=9)
    Policy.objects.filter(pk=example.dev.pk).update(parent=parent)
    changes = {"budget": Decimal(10), "budget_stops": True}
    policy_change(actor=root, policy=parent, changes=changes)
    budgets_update()
    [task] = enqueue(alice, example.dev_queue)
    run_pass()

    def words(reader: User) -> str:
        return explain_task(reader, Task.objects.get(pk=task.pk)).reasons[0].sentence

    assert words(root) == "Budget of Department for November: 10.00 of 10.00 EUR spent."
    assert words(alice) == "Budget of another team for November: spent."
    assert not ReaderNames.of(alice, task, [{"code": "budget"}]).budgets


def test_administrators_set_budgets_by_rest_and_members_see_them(
    attempt: Attempt,
    example: Example,
    root: User,
    alice: User,
    charlie: User,
    api_as: ApiAs,
    at: Callable[[datetime], None],
) -> None:
    at(BEGIN + HOUR)
    admin, member = api_as(root), api_as(alice)
    address = f"/api/v1/policies/{example.dev.pk}/"
    body = {"budget": "1000.5", "budget_stops": True}

    assert member.patch(address, body, format="json").status_code == 403
    changed = admin.patch(address, body, format="json")
    assert (changed.status_code, changed.json()["budget"]) == (200, "1000.5000")
    for wrong in ("0", "-1", "nan", "1e99", "1.00001", "x"):
        refused = admin.patch(address, {"budget": wrong}, format="json")
        assert (refused.status_code, list(refused.json()["fields"])) == (400, ["budget"])
    budgets_update()

    found = member.get(address).json()
    assert (found["budget"], found["budget_stops"], found["budget_spent"]) == (
        *("1000.5000", True),
        "10.0000",
    )
    assert api_as(charlie).get(address).status_code == 404
    removed = admin.patch(address, {"budget": None}, format="json").json()
    assert (removed["budget"], removed["budget_spent"]) == (None, None)


def test_many_budgets_take_no_more_queries(attempt: Attempt, example: Example, root: User) -> None:
    counts = []
    for more in (1, 40):
        for number in range(more):
            policy = Policy.objects.create(
                name=f"p{more}-{number}",
                group=example.dev.group,
                parent=example.dev if number % 2 else None,
                budget=Decimal(10),
            )
            PolicySpending.objects.create(policy=policy, at=BEGIN, noticed_budget=10)
        with CaptureQueriesContext(connection) as captured:
            budgets_update(now=BEGIN)
        counts.append(len(captured))

    assert counts[0] == counts[1]


def test_a_preview_and_a_check_know_the_budget(
    attempt: Attempt, example: Example, root: User, alice: User, api_as: ApiAs
) -> None:
    changes = {"budget": Decimal(10), "budget_stops": True}
    policy_change(actor=root, policy=example.dev, changes=changes)
    PolicySpending.objects.create(
        policy=example.dev, at=timezone.now(), spent=11_000_000, noticed_budget=10
    )
    body = {"name": "next", "queue": example.dev_queue.name, "command": ["true"]}
    checked = api_as(alice).post("/api/v1/tasks/check/", body, format="json").json()
    assert checked["code"] == "budget"
    assert checked["sentence"].endswith("11.00 of 10.00 EUR spent.")

    [task] = enqueue(alice, example.dev_queue)
    address = f"/api/v1/policies/{example.dev.pk}/preview/"
    same, raised = (
        api_as(root).post(address, {"budget": budget}, format="json").json()
        for budget in ("10.5", "12")
    )
    assert (f"{task.pk}" in f"{same['starts']}", f"{task.pk}" in f"{raised['starts']}") == (
        False,
        True,
    )


def test_a_pass_is_notified_where_tasks_must_wait_or_may_start(
    attempt: Attempt, example: Example, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified: list[str] = []

    def note(*, notify: Iterable[str] = ()) -> None:
        notified.extend(notify)

    monkeypatch.setattr("apps.usage.services.budgets.after_commit", note)
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(10)})
    budgets_update(now=BEGIN + HOUR)
    assert notified == [], "it stops nothing"
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(20)})
    policy_change(actor=root, policy=example.dev, changes={"budget_stops": True})
    for minutes in (119, 120, 121):
        budgets_update(now=BEGIN + timedelta(minutes=minutes))
    assert notified == ["allocation.run_pass"]
    # Less than it was: an end that arrived late.
    Attempt.objects.update(ended_at=BEGIN + HOUR)
    budgets_update(now=BEGIN + timedelta(minutes=122))
    assert notified == ["allocation.run_pass"] * 2
    Attempt.objects.update(ended_at=None)
    budgets_update(now=datetime(2026, 11, 30, 23, tzinfo=UTC))
    budgets_update(now=datetime(2026, 12, 1, tzinfo=UTC))
    assert notified == ["allocation.run_pass"] * 4


def test_a_clock_that_was_days_ahead_keeps_no_budget_from_being_seen_to(
    attempt: Attempt, example: Example, root: User
) -> None:
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(100)})
    budgets_update(now=BEGIN + timedelta(days=30))
    assert spent(example.dev, BEGIN + HOUR) == 0

    budgets_update(now=BEGIN + HOUR)

    assert spent(example.dev, BEGIN + HOUR) == Decimal(10)
