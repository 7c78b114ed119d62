"""Engines broken on purpose: each is caught by its law, on a small snapshot found beforehand."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.scenarios import snapshot_from_json
from tests.allocation.engine.broken.engines import BROKEN
from tests.allocation.engine.broken.misreadings import Broken
from tests.allocation.engine.broken.search import FOLDER, is_broken
from tests.allocation.engine.laws import BY_NAME


def snapshot_of(broken: Broken) -> Snapshot:
    text = (FOLDER / f"{broken.name}.json").read_text(encoding="utf-8")
    return snapshot_from_json(json.loads(text))


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: f"{one.law}-{one.name}")
def test_a_broken_engine_is_caught_by_its_law(broken: Broken) -> None:
    snapshot = snapshot_of(broken)

    assert is_broken(broken.law, snapshot, broken.engine(decide))
    assert not is_broken(broken.law, snapshot, decide)


def test_every_law_catches_three_broken_engines_or_more() -> None:
    counts = Counter(BY_NAME[one.law].number for one in BROKEN)

    assert sorted(counts) == list(range(1, 10))
    assert min(counts.values()) >= 3
