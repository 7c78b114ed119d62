"""Tasks in the admin site: to look at, without secrets, and only for administrators."""

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_administrators_read_tasks_and_nobody_reads_their_secrets(
    alice: User, root: User, quinn: User, example: Example
) -> None:
    spec = TaskSpec(
        name="train",
        queue=example.dev_queue.name,
        command=["true"],
        environment={"API_TOKEN": "very-private", "SEED": "7", "WANDB_RUN": "own-private"},
    )
    User.objects.filter(pk=alice.pk).update(redacted_variables=["wandb_*"])
    task = task_submit(actor=alice, spec=spec)
    page = reverse("admin:tasks_task_change", args=[task.pk])
    site = {user.username: Client() for user in (alice, root, quinn)}
    for user in (alice, root, quinn):
        site[user.username].force_login(user)

    shown = site["root"].get(page)

    assert "&quot;SEED&quot;: &quot;7&quot;" in shown.text
    assert "very-private" not in shown.text
    assert "own-private" not in shown.text
    assert 'name="_save"' not in shown.text
    assert site["root"].get(reverse("admin:tasks_task_changelist")).status_code == 200
    assert site["root"].get(reverse("admin:tasks_attempt_changelist")).status_code == 200
    assert site["quinn"].get(page).status_code == 403
    assert site["alice"].get(page).status_code == 302
