"""Whatever happens to an array: every index once, never more live than the limit, one removal."""

from collections import Counter
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services import arrays
from apps.tasks.services.retention import Retention, expired_remove
from apps.tasks.services.stop import task_abort
from tests.people import Example
from tests.tasks.services.array_steps import array_of, finish, stop_all, stored

pytestmark = pytest.mark.django_db


def test_a_step_that_is_cut_off_stores_nothing(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = array_of(alice, served, 3)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(arrays, "transition_record", fail)
        with pytest.raises(KeyboardInterrupt):
            arrays.array_advance(array.pk)
    assert stored(array) == []

    run_pass()
    assert stored(array) == [0, 1, 2]


def test_an_array_is_removed_with_its_elements(served: Example, alice: User) -> None:
    array = array_of(alice, served, 2)
    run_pass()
    finish(array, 0, 0)
    Attempt.objects.update(is_booked=True)
    Member.objects.update(is_acknowledged=True)
    keep = Retention(logs=None, tasks=timedelta(days=1))
    later = timezone.now() + timedelta(days=2)
    # The array has not ended: all of it stays.
    assert expired_remove(keep, now=later).tasks == 0

    run_pass()
    assert expired_remove(keep, now=later).tasks == 3

    assert not Task.objects.exists()


@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_index_runs_once_and_never_more_than_the_limit(
    served: Example, alice: User, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, 12), "size")
    limit = data.draw(st.none() | st.integers(1, 5), "limit")
    array = array_of(alice, served, size, limit)
    for _ in range(40):
        step = data.draw(st.sampled_from(["pass", "pass", "end", "abort", "cut"]), "step")
        running = list(Attempt.objects.filter(task__array=array, ended_at=None))
        if step == "pass":
            run_pass()
        elif step == "end" and running:
            code = data.draw(st.sampled_from([0, 0, 1]), "code")
            finish(array, *[code for one in running[:1] if one.state == "allocated"])
        elif step == "abort" and array.elements.exists():
            task_abort(actor=alice, task=data.draw(st.sampled_from(list(array.elements.all()))))
            stop_all(array)
        elif step == "cut":
            with suppress(KeyboardInterrupt), transaction.atomic():
                arrays.array_advance(array.pk)
                raise KeyboardInterrupt
        live = array.elements.exclude(state__in=["completed", "failed", "aborted"]).count()
        assert limit is None or live <= limit
    for _ in range(size + 2):
        run_pass()
        finish(array, *[0 for one in Attempt.objects.filter(task__array=array, ended_at=None)])
    run_pass()

    array.refresh_from_db()
    assert array.state in {"completed", "failed", "aborted"}
    assert stored(array) == list(range(size))
    ran = Counter(one.task.array_index for one in Attempt.objects.filter(task__array=array))
    assert all(count == 1 for count in ran.values())
