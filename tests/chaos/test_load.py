"""What the client will ask for."""

from tests.chaos.load import PlannedTask, QueueTarget, planned_tasks

QUEUE_TARGETS = {
    kind: [QueueTarget(f"{kind}-queue", {"image": "none"}, "/job")]
    for kind in ("podman", "process")
}


def drawn(*, lasts_s: float = 0) -> list[PlannedTask]:
    return planned_tasks(
        seed=3, seconds=100, count=200, containers=40, queue_targets=QUEUE_TARGETS, lasts_s=lasts_s
    )


def test_work_of_every_kind_comes_all_along() -> None:
    found = drawn()

    assert len({planned.at_s for planned in found}) == 200
    assert any(planned.is_aborted for planned in found)
    assert {planned.body["command"][2] for planned in found} == {"0", "3"}
    assert {planned.body["command"][3] for planned in found} == {"plain", "stubborn", "leaver"}
    assert max(float(planned.body["command"][1]) for planned in found) <= 20


def test_work_that_is_to_last_begins_at_once_and_ends_well() -> None:
    found = drawn(lasts_s=630)

    assert {planned.at_s for planned in found} == {0}
    assert not any(planned.is_aborted for planned in found)
    assert {tuple(planned.body["command"][1:]) for planned in found} == {("630", "0", "plain")}
