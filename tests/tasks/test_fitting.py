"""Which tasks could never run, and with which numbers that is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tasks.fitting import Ceiling, Room, never_fits


def gpus(amount: float) -> dict[str, int]:
    return {"gpu": round(amount * 1000)}


def ceiling(
    reserved: float | None = 8, limit: float | None = None, user: float | None = None
) -> Ceiling:
    return Ceiling(
        reserved=gpus(reserved) if reserved is not None else {},
        limit=gpus(limit) if limit is not None else {},
        user_limit=gpus(user) if user is not None else {},
    )


def nodes(*sizes: float) -> Room:
    return Room(capacity=gpus(sum(sizes)), nodes=tuple(gpus(size) for size in sizes))


OPEN = ceiling(limit=None)


@pytest.mark.parametrize(
    ("case", "want_fields", "want_words"),
    [
        pytest.param({}, [], "", id="what fits is not refused"),
        pytest.param(
            {"ceilings": [ceiling(limit=3)]},
            ["request.gpu"],
            "needs 4 in all, its policy has a limit of 3",
            id="larger than its policy's limit",
        ),
        pytest.param(
            {"ceilings": [OPEN, ceiling(limit=3)]},
            ["request.gpu"],
            "a policy above it has a limit of 3",
            id="larger than an ancestor's limit",
        ),
        pytest.param(
            {"ceilings": [ceiling(user=2)]},
            ["request.gpu"],
            "limit per person of 2",
            id="larger than the limit per person",
        ),
        pytest.param(
            {"replicas": 3, "ceilings": [ceiling(limit=8)]},
            ["request.gpu"],
            "needs 12 in all",
            id="members count together",
        ),
        pytest.param(
            {"ceilings": [ceiling(reserved=2)]}, [], "", id="preemptible work may pass reservations"
        ),
        pytest.param(
            {"is_preemptible": False, "ceilings": [ceiling(reserved=2)]},
            ["request.gpu"],
            "its policy reserves 2",
            id="other work may not",
        ),
        pytest.param(
            {"is_preemptible": False, "ceilings": [OPEN, ceiling(reserved=2)]},
            ["request.gpu"],
            "a policy above it reserves 2",
            id="nor that of an ancestor",
        ),
        pytest.param(
            {"is_preemptible": False, "ceilings": [ceiling(reserved=None)]},
            ["is_preemptible"],
            "reserves nothing",
            id="without a reservation only preemptible work runs",
        ),
        pytest.param(
            {"request": gpus(9)},
            ["request.gpu"],
            "the largest pool of the profile has 8",
            id="larger than every pool",
        ),
        pytest.param(
            {"request": gpus(9), "rooms": [nodes(8), nodes(16)]}, [], "", id="one pool is enough"
        ),
        pytest.param({"request": gpus(9), "rooms": []}, [], "", id="a link may come"),
        pytest.param(
            {"rooms": [nodes(2, 2, 2)]},
            ["request.gpu"],
            "needs 4 per member, the largest node of these pools has 2",
            id="a member larger than every node",
        ),
        pytest.param(
            {"replicas": 3, "rooms": [nodes(6, 6)]},
            ["replicas"],
            "no pool of the profile holds so many members at once",
            id="a gang that no pool holds whole",
        ),
        pytest.param(
            {"replicas": 2, "rooms": [nodes(6, 6)]}, [], "", id="a gang with one member per node"
        ),
        pytest.param(
            {"request": gpus(0.6), "replicas": 3, "rooms": [nodes(2)]},
            ["replicas"],
            "so many members",
            id="two of 0.6 do not share a GPU",
        ),
        pytest.param(
            {"request": gpus(0.5), "replicas": 4, "rooms": [nodes(2)]}, [], "", id="four of 0.5 do"
        ),
        pytest.param(
            {"request": {"gpu": 1000, "cpu": 64_000}}, [], "", id="uncounted keys do not matter"
        ),
        pytest.param(
            {"request": {"gpu": 1000, "license": 1000}},
            ["request.license"],
            "has 0",
            id="other keys are missing where they are not listed",
        ),
        pytest.param(
            {
                "request": {"gpu": 1000, "license": 1000},
                "rooms": [Room({"gpu": 8000, "license": 2000}, nodes=(gpus(8),))],
            },
            [],
            "",
            id="a key of the pool alone is not looked for on nodes",
        ),
    ],
)
def test_what_could_never_run(
    case: dict[str, Any], want_fields: list[str], want_words: str
) -> None:
    usual: dict[str, Any] = {
        "request": gpus(4),
        "replicas": 1,
        "is_preemptible": True,
        "ceilings": [OPEN],
        "rooms": [Room(gpus(8))],
    }

    problems = never_fits(**{**usual, **case})

    assert list(problems) == want_fields
    assert want_words in " ".join(problems.values())


@given(
    request=st.integers(1, 20_000),
    replicas=st.integers(1, 4),
    is_preemptible=st.booleans(),
    reserved=st.integers(0, 20_000),
    limit=st.integers(0, 20_000),
    capacity=st.integers(0, 20_000),
)
def test_a_larger_task_never_fits_where_a_smaller_one_does_not(
    *, request: int, replicas: int, is_preemptible: bool, reserved: int, limit: int, capacity: int
) -> None:
    def problems(amount: int) -> dict[str, str]:
        return never_fits(
            request={"gpu": amount},
            replicas=replicas,
            is_preemptible=is_preemptible,
            ceilings=[Ceiling({"gpu": reserved}, {"gpu": limit}, {})],
            rooms=[Room({"gpu": capacity})],
        )

    if problems(request):
        assert problems(request + 1000)
