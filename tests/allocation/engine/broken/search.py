"""Finds a small snapshot on which a broken engine breaks its law, and the right one does not.

    python -m tests.allocation.engine.broken.search [NAME ...]

Writes snapshots/NAME.json next to this file; `test_broken.py` only reads them. What is generated
first is then made smaller as long as it still tells the two engines apart.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.scenarios import snapshot_from_json, snapshot_to_json
from tests.allocation.engine.broken.engines import BROKEN
from tests.allocation.engine.broken.misreadings import Broken
from tests.allocation.engine.families import EVERYTHING, PACKED, TAKING, Family
from tests.allocation.engine.laws import BY_NAME
from tests.allocation.engine.laws.history import Case, Decide, Moment, moments
from tests.allocation.engine.strategies import cases

FOLDER = Path(__file__).parent / "snapshots"
KINDS = {"every": EVERYTHING, "taking": TAKING, "packed": PACKED}


def is_broken(law: str, snapshot: Snapshot, engine: Decide) -> bool:
    """Whether the engine breaks the law in its pass over the snapshot."""
    try:
        plan = engine(snapshot)
    except (AssertionError, LookupError):
        # It does not even come to an end: that is no matter of the law.
        return False
    try:
        BY_NAME[law].check(Moment(snapshot, plan, engine))
    except AssertionError:
        return True
    return False


def reread(snapshot: Snapshot) -> Snapshot:
    return snapshot_from_json(json.loads(snapshot_to_json(snapshot)))


def main(names: list[str]) -> int:
    left = {one.name: one for one in BROKEN if not names or one.name in names}
    FOLDER.mkdir(exist_ok=True)
    for name, kind in KINDS.items():
        for number in range(8):
            _search(left, kind, number)
            sys.stdout.write(f"{name} {number}: {len(left)} left: {', '.join(left)}" + "\n")
            if not left:
                return 0
    return 1


def _search(left: dict[str, Broken], kind: Family, number: int) -> None:
    engines = {name: one.engine(decide) for name, one in left.items()}

    @seed(number)
    @settings(
        max_examples=150,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(kind))
    def look(case: Case) -> None:
        for moment in moments(case, decide):
            for name, one in list(left.items()):
                engine = engines[name]
                if is_broken(one.law, moment.snapshot, engine) and _keep(one, engine, moment):
                    del left[name]

    look()


def _keep(one: Broken, engine: Decide, moment: Moment) -> bool:
    def tells_apart(snapshot: Snapshot) -> bool:
        return is_broken(one.law, snapshot, engine) and not is_broken(one.law, snapshot, decide)

    if not tells_apart(reread(moment.snapshot)):
        return False
    small = smaller(moment.snapshot, lambda snapshot: tells_apart(reread(snapshot)))
    text = json.dumps(json.loads(snapshot_to_json(small)), indent=1)
    (FOLDER / f"{one.name}.json").write_text(f"{text}\n", encoding="utf-8")
    return True


def smaller(snapshot: Snapshot, is_good: Callable[[Snapshot], bool]) -> Snapshot:
    """Leave out what can be left out, one thing after the other."""
    is_done = False
    while not is_done:
        is_done = True
        for less in _with_less(snapshot):
            if _is_valid(less) and is_good(less):
                snapshot = less
                is_done = False
                break
    return snapshot


def _is_valid(snapshot: Snapshot) -> bool:
    try:
        reread(snapshot)
    except (ValueError, KeyError, StopIteration):
        return False
    return True


def _with_less(snapshot: Snapshot) -> Iterator[Snapshot]:
    for name in ("queued_groups", "running", "queues", "pools", "policies"):
        rows = getattr(snapshot, name)
        for place in range(len(rows)):
            rest: Any = {name: (*rows[:place], *rows[place + 1 :])}
            less = replace(snapshot, **rest)
            yield _unlinked(less)
    for place, queued in enumerate(snapshot.queued_groups):
        for number in range(len(queued.heads) if len(queued.heads) > 1 else 0):
            heads = (*queued.heads[:number], *queued.heads[number + 1 :])
            short = replace(queued, heads=heads, count=len(heads))
            queued_groups = (
                *snapshot.queued_groups[:place],
                short,
                *snapshot.queued_groups[place + 1 :],
            )
            yield replace(snapshot, queued_groups=queued_groups)


def _unlinked(snapshot: Snapshot) -> Snapshot:
    """Without what refers to something that is gone."""
    pools = {pool.id for pool in snapshot.pools}
    policies = {policy.id for policy in snapshot.policies}
    queues = tuple(queue for queue in snapshot.queues if queue.policy in policies)
    known = {queue.id for queue in queues}
    return replace(
        snapshot,
        queues=queues,
        profiles=tuple(
            replace(
                one,
                pools=tuple(pool for pool in one.pools if pool in pools),
                policies=tuple(policy for policy in one.policies if policy in policies),
            )
            for one in snapshot.profiles
        ),
        policies=tuple(
            one if one.parent in policies else replace(one, parent=None)
            for one in snapshot.policies
        ),
        queued_groups=tuple(queued for queued in snapshot.queued_groups if queued.queue in known),
        running=tuple(
            group for group in snapshot.running if group.pool in pools and group.queue in known
        ),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
