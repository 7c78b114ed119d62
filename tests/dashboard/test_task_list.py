"""The list of tasks: ended ones stand in the order in which they ended."""

from datetime import datetime, timedelta
from urllib.parse import parse_qs

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.dashboard.cards import tasks
from apps.dashboard.cards.tasks import TaskList, load_task_list
from apps.dashboard.selectors.tasks import TaskFilter
from apps.tasks.models import Task
from tests.dashboard.conftest import Submit

pytestmark = pytest.mark.django_db


def ended(task: Task, at: datetime) -> None:
    Task.objects.filter(pk=task.pk).update(state="aborted", ended_at=at)


def names(user: User, query: str) -> tuple[list[str], str]:
    page = load_task_list(user, query)
    assert isinstance(page, TaskList)
    return [row.task.name for row in page.rows], page.older


def test_ended_tasks_are_listed_in_the_order_in_which_they_ended(
    alice: User, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    # The first that came ended last; two ended at once.
    for number, ago in enumerate((0, 1, 1, 2)):
        ended(submit(alice, f"t{number}"), now - timedelta(minutes=ago))
    monkeypatch.setattr(tasks, "PAGE", 2)

    first, older = names(alice, "view=ended")
    second, end = names(alice, older)

    assert (first, second, end) == (["t0", "t2"], ["t1", "t3"], "")


def test_other_views_stay_in_the_order_of_creation_and_a_bad_place_is_the_first_page(
    alice: User, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        submit(alice, f"t{number}")
    monkeypatch.setattr(tasks, "PAGE", 2)

    first, older = names(alice, "view=waiting")

    assert (first, names(alice, older)[0]) == (["t2", "t1"], ["t0"])
    assert set(parse_qs(older)) == {"view", "before"}
    assert TaskFilter.parse("view=ended&before=1&before_at=yesterday").query() == "view=ended"
