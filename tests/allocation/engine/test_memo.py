"""What passes of one engine share must not change what they decide."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from apps.allocation.engine import Engine, decide, decision
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.engine.state import configuration
from apps.allocation.engine.state.configuration import compile_snapshot
from apps.allocation.engine.state.memo import Memo
from tests.allocation.engine.builders import amounts, gpus, placed, queued, scenario
from tests.allocation.engine.laws.history import Case, moments
from tests.allocation.engine.strategies import any_cases


def two_wait(*, capacity: int = 2, limit: int = 8) -> Snapshot:
    return scenario(
        pools=[{"name": "a", "capacity": {"gpu": capacity}, "profiles": ["one"]}],
        profiles=[{"name": "one", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[{"name": "team", "limit": {"gpu": limit}, "profiles": ["one"]}],
        tasks=[queued("t1", "team", "one", 1), queued("t2", "team", "one", 2)],
    )


def test_an_equal_configuration_is_compiled_once() -> None:
    memo = Memo()
    first = compile_snapshot(two_wait(), memo)

    assert compile_snapshot(two_wait(), memo) is first
    assert compile_snapshot(two_wait(limit=7), memo) is not first


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param(two_wait(capacity=1), {"t1": "a"}, id="a smaller pool"),
        pytest.param(two_wait(limit=1), {"t1": "a"}, id="a lower limit"),
        pytest.param(
            replace(two_wait(), settings=replace(two_wait().settings, is_enabled=False)),
            {},
            id="switched off",
        ),
    ],
)
def test_a_changed_configuration_counts_at_once(changed: Snapshot, want: dict[str, str]) -> None:
    engine = Engine()
    engine.decide(two_wait())

    assert placed(engine.decide(changed)) == want
    assert placed(engine.decide(two_wait())) == {"t1": "a", "t2": "a"}


def test_a_key_that_only_a_task_asks_for_is_learnt_later() -> None:
    plain = two_wait()
    [queued] = plain.queued_groups
    asking = replace(plain, queued_groups=(replace(queued, request=amounts(gpu=1, license=1)),))
    engine = Engine()
    engine.decide(plain)

    assert placed(engine.decide(asking)) == {}
    assert placed(engine.decide(plain)) == {"t1": "a", "t2": "a"}


def test_other_requests_of_the_same_queue_are_not_confused() -> None:
    plain = two_wait()
    [queued] = plain.queued_groups
    larger = replace(plain, queued_groups=(replace(queued, request=gpus(2)),))
    engine = Engine()

    assert placed(engine.decide(plain)) == {"t1": "a", "t2": "a"}
    assert placed(engine.decide(larger)) == {"t1": "a"}


@given(any_cases())
def test_an_engine_decides_as_if_each_pass_were_its_first(case: Case) -> None:
    engine = Engine()
    for moment in moments(case, decide):
        assert engine.decide(moment.snapshot) == moment.plan
        assert engine.decide(moment.snapshot) == moment.plan


def test_two_passes_at_the_same_time_share_no_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    memos: list[Memo] = []

    def compile_after_another_pass(
        snapshot: Snapshot, memo: Memo
    ) -> configuration.CompiledConfiguration:
        memos.append(memo)
        if len(memos) == 2:
            engine.decide(two_wait())
        return compile_snapshot(snapshot, memo)

    monkeypatch.setattr(decision, "compile_snapshot", compile_after_another_pass)
    engine.decide(two_wait())
    engine.decide(two_wait())

    first, second, within = memos
    assert second is first
    assert within is not second


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    memo = Memo()
    first = compile_snapshot(two_wait(), memo)
    monkeypatch.setattr(configuration, "MOST_SHAPES", 1)

    second = compile_snapshot(two_wait(), memo)

    assert second is not first
    assert second.version == first.version
