"""The ring that removes what is old."""

from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone

from apps.accounts.models import User
from apps.tasks.background import tasks_remove_old
from apps.tasks.models import IdempotencyKey


def test_beat_rings_for_it_by_the_name_that_it_has(settings: LazySettings) -> None:
    rings = [entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()]

    assert tasks_remove_old.name in rings


@pytest.mark.django_db
def test_the_ring_removes_what_is_old(alice: User) -> None:
    IdempotencyKey.objects.create(
        user=alice,
        key="old",
        body_hash="x",
        task_id="00000000-0000-0000-0000-000000000000",
        created_at=timezone.now() - timedelta(days=30),
    )

    tasks_remove_old()

    assert not IdempotencyKey.objects.exists()
