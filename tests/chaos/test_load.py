"""What the client will ask for."""

from tests.chaos.load import Place, Wish, wishes

PLACES = {
    kind: [Place(f"{kind}-queue", {"image": "none"}, "/job")] for kind in ("podman", "process")
}


def drawn(*, lasts_s: float = 0) -> list[Wish]:
    return wishes(seed=3, seconds=100, count=200, containers=40, places=PLACES, lasts_s=lasts_s)


def test_work_of_every_kind_comes_all_along() -> None:
    found = drawn()

    assert len({wish.at_s for wish in found}) == 200
    assert any(wish.is_aborted for wish in found)
    assert {wish.body["command"][2] for wish in found} == {"0", "3"}
    assert {wish.body["command"][3] for wish in found} == {"plain", "stubborn", "leaver"}
    assert max(float(wish.body["command"][1]) for wish in found) <= 20


def test_work_that_is_to_last_begins_at_once_and_ends_well() -> None:
    found = drawn(lasts_s=630)

    assert {wish.at_s for wish in found} == {0}
    assert not any(wish.is_aborted for wish in found)
    assert {tuple(wish.body["command"][1:]) for wish in found} == {("630", "0", "plain")}
