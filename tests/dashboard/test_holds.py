"""Holding and releasing a task on its page."""

import pytest
from django.urls import reverse

from apps.accounts.models import User
from tests.allocation.state import enqueue
from tests.dashboard.conftest import ClientFor
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_the_page_of_a_task_holds_and_releases_it(
    example: Example, alice: User, root: User, client_for: ClientFor
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    pk = task.pk
    page = reverse("task_detail", args=[pk])
    client = client_for(alice)
    assert 'form="task-hold"' in client.get(page).content.decode()

    client.post(reverse("task_hold", args=[pk]))

    html = client.get(page).content.decode()
    assert 'form="task-release"' in html
    assert 'form="task-hold"' not in html
    assert "Its owner put it on hold." in html
    assert "Put on hold" in html
    assert "On hold" in client.get(reverse("task_list")).content.decode()

    client.post(reverse("task_release", args=[pk]))
    client_for(root).post(reverse("task_hold", args=[pk]))
    html = client.get(page).content.decode()
    assert 'form="task-release"' not in html
    assert 'form="task-hold"' not in html
    client.post(reverse("task_release", args=[pk]))
    task.refresh_from_db()
    assert task.ineligible_code == "admin_hold"
