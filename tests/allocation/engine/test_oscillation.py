"""Where passes do not come to rest: what law 9 in docs/allocation.md leaves out."""

from __future__ import annotations

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Id, Snapshot
from tests.allocation.engine.builders import after, queued, running, scenario
from tests.allocation.engine.laws.repetition import may_prefer_in_a_circle

SIZES = (1, 3, 4)


def lumps(over_quota: str) -> Snapshot:
    """8 GPUs; `a` reserves 2 and wants 4 at once, `c` reserves 3 and runs 1, 3 and 3."""
    profiles = [f"p{size}" for size in SIZES]
    return scenario(
        settings={"preemption": "reclaim", "over_quota": over_quota},
        pools=[{"name": "pool", "capacity": {"gpu": 8}, "profiles": profiles}],
        profiles=[
            {"name": f"p{size}", "request": {"gpu": size}, "pools": ["pool"]} for size in SIZES
        ],
        policies=[
            {"name": name, "reserved": {"gpu": reserved}, "profiles": profiles}
            for name, reserved in (("a", 2), ("b", 3), ("c", 3))
        ],
        tasks=[
            running("b1", "b", "p1", "pool", submitted=4, started=4),
            running("c1", "c", "p1", "pool", submitted=1, started=1),
            running("c2", "c", "p3", "pool", submitted=2, started=2),
            running("c3", "c", "p3", "pool", submitted=3, started=3),
            queued("a1", "a", "p4", 5),
        ],
    )


def victims(snapshot: Snapshot, passes: int) -> list[set[Id]]:
    """Of passes that are carried out one after another."""
    found = []
    for _ in range(passes):
        plan = decide(snapshot)
        found.append({one.task for one in plan.preempted})
        snapshot = after(snapshot, plan, is_drained=True)
    return found


def test_by_fair_shares_two_policies_may_take_one_large_task_by_turns() -> None:
    """Each has the smaller share once the other's last task runs: 4 GPUs are given at a time."""
    found = victims(lumps("fair_share"), 30)

    assert all(found)
    assert found[1::2] == [{"a1"}] * 15


def test_by_the_order_of_policies_they_come_to_rest() -> None:
    assert not victims(lumps("priority"), 3 * 5)[-1]


def circle() -> Snapshot:
    """12 GPUs: `wide` has a higher priority than `small`, `first` the better rank than `wide`,
    and `small`, whenever it waits, is within what its policy reserves.
    """
    return scenario(
        settings={"preemption": "rank"},
        pools=[{"name": "pool", "capacity": {"gpu": 12}, "profiles": ["large", "little"]}],
        profiles=[
            {"name": "large", "request": {"gpu": 3}, "pools": ["pool"]},
            {"name": "little", "request": {"gpu": 1}, "pools": ["pool"]},
        ],
        policies=[
            {"name": "one", "reserved": {"gpu": 4}, "profiles": ["large"]},
            {"name": "two", "reserved": {"gpu": 4}, "profiles": ["large", "little"]},
        ],
        tasks=[
            running("o1", "one", "large", "pool", started=1),
            running("o2", "one", "large", "pool", started=1),
            running("kept", "two", "large", "pool", started=1, priority=1),
            running("small", "two", "little", "pool", started=1),
            queued("wide", "two", "large", priority=1),
            queued("o3", "one", "large"),
        ],
    )


def test_rank_priority_and_reservation_may_prefer_in_a_circle() -> None:
    found = victims(circle(), 30)

    assert all(found)
    assert found[-3:] == found[-6:-3]
    assert may_prefer_in_a_circle(circle())
