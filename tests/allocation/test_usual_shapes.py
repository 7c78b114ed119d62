"""What a pool usually gets: from history, one query, with linked profiles as a start."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import UsualShape
from apps.allocation.loader.configuration import load_configuration
from apps.allocation.loader.texts import microseconds
from apps.allocation.loader.usual_shapes import load_usual
from apps.allocation.services import run_pass
from apps.policies.models import Profile
from apps.tasks.models import Attempt
from tests.allocation.state import enqueue, make_node
from tests.people import Example

FOUR = Quantities.whole(gpu=4)


def usual(**later: float) -> list[UsualShape]:
    """As the pass of a later moment sees it."""
    moment = timezone.now() + timedelta(**later)
    return list(load_usual(load_configuration(), now_us=microseconds(moment)))


def frequency(pool: object, request: Quantities, found: list[UsualShape]) -> int:
    return sum(one.frequency for one in found if one.pool == pool and one.request == request)


def start(example: Example, alice: User, count: int) -> None:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, count)
    assert run_pass().ran
    assert Attempt.objects.count() == count


def test_a_pool_without_history_expects_its_profiles(example: Example) -> None:
    found = usual()

    assert frequency(example.bare_metal.pk, FOUR, found) == 1
    assert {one.frequency for one in found} == {1}


def test_admissions_count_from_the_next_full_hour_for_two_weeks(
    example: Example, alice: User
) -> None:
    start(example, alice, 2)
    pool = example.bare_metal.pk

    assert frequency(pool, FOUR, usual(hours=-1)) == 1
    assert frequency(pool, FOUR, usual(hours=1)) == 3
    assert frequency(example.h100.pk, FOUR, usual(hours=1)) == 1
    assert frequency(pool, FOUR, usual(days=15)) == 1


def test_device_models_of_the_profile_belong_to_the_shape(example: Example, alice: User) -> None:
    start(example, alice, 1)
    Profile.objects.update(device_models=["H100", "A100"])

    models = {one.models for one in usual(hours=1) if one.request == FOUR}
    assert models == {("A100", "H100")}


def test_only_the_latest_admissions_and_the_most_frequent_shapes_are_looked_at(
    example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(example, alice, 2)
    pool = example.bare_metal.pk
    other = Quantities.whole(gpu=7)
    Attempt.objects.filter(pk=Attempt.objects.earliest("id").pk).update(request={"gpu": 7000})

    assert [frequency(pool, one, usual(hours=1)) for one in (FOUR, other)] == [2, 1]

    with monkeypatch.context() as patched:
        patched.setattr("apps.allocation.loader.usual_shapes.MOST_ATTEMPTS", 1)
        assert [frequency(pool, one, usual(hours=1)) for one in (FOUR, other)] == [2, 0]

    monkeypatch.setattr("apps.allocation.loader.usual_shapes.MOST_SHAPES", 1)
    assert [one.request for one in usual(hours=1) if one.pool == pool] == [FOUR]


def test_it_takes_one_query(example: Example, alice: User) -> None:
    start(example, alice, 2)
    configuration = load_configuration()

    with CaptureQueriesContext(connection) as captured:
        load_usual(configuration, now_us=microseconds(timezone.now() + timedelta(hours=1)))

    assert len(captured) == 1
