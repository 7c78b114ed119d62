"""The policies on the overview: how they use what they hold, and which are marked."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change, policy_create
from apps.core import clock
from apps.dashboard.cards.overview import Overview, load_overview
from apps.events.models import AuditEntry
from apps.policies.models import Policy
from apps.tasks.models import AttemptUse
from apps.usage.models import PolicyHour, UseThreshold
from apps.usage.selectors.bookings import hour_of
from apps.usage.selectors.policy_use import use_threshold
from apps.usage.services.thresholds import use_threshold_set
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import folded, text
from tests.people import Example

pytestmark = pytest.mark.django_db
GPU_HOUR = 3_600_000_000
REST = "/api/v1/usage/threshold/"


def used(policy: Policy, example: Example, percent: int, *, hours: int = 0, known: int = 1) -> None:
    at = hour_of(clock.now()) - timedelta(hours=hours)
    PolicyHour.objects.create(
        at=at,
        policy=policy,
        pool=example.h100,
        held=GPU_HOUR,
        known=known * GPU_HOUR,
        used=known * percent * GPU_HOUR // 100,
    )


def figures(user: User) -> dict[str, tuple[int | None, int, bool]]:
    """GPU use, idle GPUs and whether it is marked, of each policy."""
    card = load_overview(user, "")
    assert isinstance(card, Overview)
    return {
        one.row.policy.name: (one.use.percent, one.use.idle, one.is_low) for one in card.policies
    }


def test_a_policy_contains_the_use_of_those_below_it_in_the_last_hours(
    example: Example, root: User, alice: User, dev_group: Group, client_for: ClientFor
) -> None:
    top = policy_create(actor=root, name="Laboratory", group=dev_group)
    for policy in (example.dev, example.research):
        policy_change(actor=root, policy=policy, changes={"parent": top})
    used(example.dev, example, 90, hours=1)
    used(example.dev, example, 30)
    used(example.dev, example, 1, hours=2)
    used(example.research, example, 20, known=2)
    use_threshold_set(actor=root, gpu_percent=41)

    assert figures(root) == {
        "Laboratory": (40, 0, True),
        "Dev": (60, 0, False),
        "Research": (20, 0, True),
    }
    assert set(figures(alice)) == {"Laboratory", "Dev"}
    response = client_for(root).get("/live/overview/")
    assert f'href="/usage/idle/?policy={example.dev.pk}"' in response.content.decode()
    page = folded(text(response))
    assert "Low GPU use 40 %" in page
    assert "red below 41 %" in page


def test_what_is_unknown_is_not_marked(example: Example, root: User, client_for: ClientFor) -> None:
    use_threshold_set(actor=root, gpu_percent=100)

    assert figures(root) == {
        "Dev": (None, 0, False),
        "Research": (None, 0, False),
    }
    assert "GPU use unknown" in folded(text(client_for(root).get("/live/overview/")))


def test_gpus_that_idle_tasks_hold_are_counted(
    example: Example, root: User, alice: User, submit: Submit, run_in: RunIn
) -> None:
    now = clock.now()
    attempt = run_in(submit(alice, "idles"), example.h100, since=now - timedelta(hours=2))
    run_in(submit(alice, "works"), example.h100, since=now - timedelta(hours=2))
    AttemptUse.objects.create(
        attempt=attempt,
        sampled_ms=1,
        known_ms=1,
        busy=0,
        process_ms=0,
        energy_mj=0,
        memory_mb=0,
        sampled_at=now,
        used_at=now - timedelta(hours=1),
    )

    assert figures(root)["Dev"][1] == 4000


def test_administrators_set_the_threshold_on_a_page_and_by_rest(
    root: User, alice: User, client_for: ClientFor, api_as: Callable[[User], APIClient]
) -> None:
    client, path = client_for(root), reverse("use_threshold")

    assert client.post(path, {"gpu_percent": "80"}).status_code == 302
    assert use_threshold() == 80
    assert client.post(path, {"gpu_percent": "101"}).status_code == 400
    assert 'value="80"' in client.get(path).content.decode()
    assert api_as(root).get(REST).json() == {"gpu_percent": 80}
    assert api_as(root).put(REST, {"gpu_percent": None}, format="json").status_code == 200
    assert use_threshold() is None
    for wrong in (0, 101, "x", 1.5):
        assert api_as(root).put(REST, {"gpu_percent": wrong}, format="json").status_code == 400
    assert client_for(alice).get(path).status_code == 404
    assert api_as(alice).get(REST).status_code == 403
    entries = AuditEntry.objects.filter(verb="usage.threshold").order_by("pk")
    changes = list(entries.values_list("after", flat=True))
    assert changes == [{"gpu_percent": 80}, {"gpu_percent": None}]


def test_the_database_refuses_what_is_no_percentage() -> None:
    for values in ({"id": 2, "gpu_percent": 5}, {"id": 1, "gpu_percent": 0}):
        with pytest.raises((IntegrityError, ValidationError)), transaction.atomic():
            UseThreshold.objects.create(**values)


def test_the_number_of_queries_does_not_grow(
    example: Example, root: User, dev_group: Group
) -> None:
    def counted() -> int:
        with CaptureQueriesContext(connection) as queries:
            load_overview(root, "")
        return len(queries)

    counted()
    few = counted()
    for number in range(5):
        policy = policy_create(actor=root, name=f"p{number}", group=dev_group)
        used(policy, example, 50)

    assert counted() == few
