"""The schedule of the work that removes expired rows."""

from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone

from apps.accounts.models import User
from apps.tasks.background import tasks_remove_old
from apps.tasks.models import IdempotencyKey


def test_beat_sends_it_by_its_name(settings: LazySettings) -> None:
    scheduled = [entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()]

    assert tasks_remove_old.name in scheduled


@pytest.mark.django_db
def test_the_periodic_task_removes_what_is_old(alice: User) -> None:
    IdempotencyKey.objects.create(
        user=alice,
        key="old",
        body_hash="x",
        task_id="00000000-0000-0000-0000-000000000000",
        created_at=timezone.now() - timedelta(days=30),
    )

    tasks_remove_old()

    assert not IdempotencyKey.objects.exists()
