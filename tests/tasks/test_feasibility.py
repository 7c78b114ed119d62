"""Which tasks could never run, and with which numbers that is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tasks.feasibility import EmptyPool, PolicyBounds, feasibility_problems


def gpus(amount: float) -> dict[str, int]:
    return {"gpu": round(amount * 1000)}


def bounds(
    reserved: float | None = 8, limit: float | None = None, user: float | None = None
) -> PolicyBounds:
    return PolicyBounds(
        reserved=gpus(reserved) if reserved is not None else {},
        limit=gpus(limit) if limit is not None else {},
        user_limit=gpus(user) if user is not None else {},
    )


def nodes(*sizes: float) -> EmptyPool:
    return EmptyPool(capacity=gpus(sum(sizes)), nodes=tuple(gpus(size) for size in sizes))


OPEN = bounds(limit=None)


@pytest.mark.parametrize(
    ("case", "want_fields", "want_words"),
    [
        pytest.param({}, [], "", id="what fits is not refused"),
        pytest.param(
            {"policy_bounds": [bounds(limit=3)]},
            ["request.gpu"],
            "is 4, but its policy has a limit of 3",
            id="larger than its policy's limit",
        ),
        pytest.param(
            {"policy_bounds": [OPEN, bounds(limit=3)]},
            ["request.gpu"],
            "a policy above it has a limit of 3",
            id="larger than an ancestor's limit",
        ),
        pytest.param(
            {"policy_bounds": [bounds(user=2)]},
            ["request.gpu"],
            "limit per user of 2",
            id="larger than the limit per user",
        ),
        pytest.param(
            {"replicas": 3, "policy_bounds": [bounds(limit=8)]},
            ["request.gpu"],
            "is 12 for all",
            id="members count together",
        ),
        pytest.param(
            {"policy_bounds": [bounds(reserved=2)]},
            [],
            "",
            id="preemptible work may pass reservations",
        ),
        pytest.param(
            {"is_preemptible": False, "policy_bounds": [bounds(reserved=2)]},
            ["request.gpu"],
            "its policy reserves 2",
            id="other work may not",
        ),
        pytest.param(
            {"is_preemptible": False, "policy_bounds": [OPEN, bounds(reserved=2)]},
            ["request.gpu"],
            "a policy above it reserves 2",
            id="nor that of an ancestor",
        ),
        pytest.param(
            {"is_preemptible": False, "policy_bounds": [bounds(reserved=None)]},
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
            {"request": gpus(9), "empty_pools": [nodes(8), nodes(16)]},
            [],
            "",
            id="one pool is enough",
        ),
        pytest.param({"request": gpus(9), "empty_pools": []}, [], "", id="a link may come"),
        pytest.param(
            {"empty_pools": [nodes(2, 2, 2)]},
            ["request.gpu"],
            "is 4 per member, but the largest node of these pools has 2",
            id="a member larger than every node",
        ),
        pytest.param(
            {"replicas": 3, "empty_pools": [nodes(6, 6)]},
            ["replicas"],
            "no pool of the profile holds so many members at once",
            id="a gang that no pool holds whole",
        ),
        pytest.param(
            {"replicas": 2, "empty_pools": [nodes(6, 6)]},
            [],
            "",
            id="a gang with one member per node",
        ),
        pytest.param(
            {"request": gpus(0.6), "replicas": 3, "empty_pools": [nodes(2)]},
            ["replicas"],
            "so many members",
            id="two of 0.6 do not share a GPU",
        ),
        pytest.param(
            {"request": gpus(0.5), "replicas": 4, "empty_pools": [nodes(2)]},
            [],
            "",
            id="four of 0.5 do",
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
                "empty_pools": [EmptyPool({"gpu": 8000, "license": 2000}, nodes=(gpus(8),))],
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
        "policy_bounds": [OPEN],
        "empty_pools": [EmptyPool(gpus(8))],
    }

    problems = feasibility_problems(**{**usual, **case})

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
        return feasibility_problems(
            request={"gpu": amount},
            replicas=replicas,
            is_preemptible=is_preemptible,
            policy_bounds=[PolicyBounds({"gpu": reserved}, {"gpu": limit}, {})],
            empty_pools=[EmptyPool({"gpu": capacity})],
        )

    if problems(request):
        assert problems(request + 1000)
