"""Figures of the table that are computed from the history."""

import pytest

from tests.chaos.history import History, ProcessLife, Silence
from tests.chaos.report import seconds_elsewhere


def life(generation: int, node: str, began_s: float, last_s: float) -> ProcessLife:
    return ProcessLife("t", generation, 0, node, 1, began_s, last_s)


@pytest.mark.parametrize(
    ("silence", "found"),
    [
        pytest.param(Silence("n1", 15, 40), [9.0], id="its node fell silent while it ran"),
        pytest.param(Silence("n2", 15, 40), [], id="another node"),
        pytest.param(Silence("n1", 5, 40), [], id="before it began"),
        pytest.param(Silence("n1", 15, 20), [], id="over before it ran elsewhere"),
    ],
)
def test_work_runs_elsewhere_so_long_after_its_node_fell_silent(
    silence: Silence, found: list[float]
) -> None:
    history = History(lives=[life(1, "n1", 10, 20), life(2, "n2", 24, 30)], silences=[silence])

    assert list(seconds_elsewhere(history)) == found
