"""What surrounds a pass: the next one, the collector of garbage, and the snapshot that is kept."""

import gc
import zlib
from collections.abc import Iterable

import pytest

from apps.accounts.models import User
from apps.allocation import services
from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.loader import load
from apps.allocation.scenarios import snapshot_to_json
from apps.allocation.scenarios.storage import snapshot_pack, snapshot_unpack
from apps.allocation.services import run_pass
from apps.nodes.models import Device, DeviceState
from apps.tasks.lifecycle import writers
from apps.tasks.services.stop import task_abort
from tests.allocation.state import enqueue, make_node, states
from tests.people import Example


@pytest.fixture
def served(example: Example) -> Example:
    make_node(example.bare_metal, name="b1")
    return example


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The background work that a pass notifies."""
    found: list[str] = []

    def note(*, notify: Iterable[str]) -> None:
        found.extend(notify)

    monkeypatch.setattr(services, "after_commit", note)
    monkeypatch.setattr(writers, "after_commit", note)
    return found


def test_a_pass_that_skipped_all_it_would_place_asks_for_the_next(
    served: Example, alice: User, notified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, waiting = enqueue(alice, served.dev_queue, 2)
    Device.objects.filter(index__gte=4).update(state=DeviceState.MISSING)

    def meanwhile(snapshot: Snapshot) -> Plan:
        plan = decide(snapshot)
        task_abort(actor=alice, task=stale)
        notified.clear()
        return plan

    monkeypatch.setattr(services.ENGINE, "decide", meanwhile)
    outcome = run_pass()

    assert (outcome.placed, outcome.skipped) == (0, 1)
    assert notified == ["allocation.run_pass"]

    monkeypatch.setattr(services.ENGINE, "decide", decide)
    assert run_pass().placed == 1
    assert states([waiting]) == ["allocated"]


def test_a_pass_that_placed_work_has_it_launched_and_looks_again(
    served: Example, alice: User, notified: list[str]
) -> None:
    enqueue(alice, served.dev_queue)
    notified.clear()

    run_pass()

    assert notified == ["execution.poll", "allocation.run_pass"]


def test_a_pass_that_changed_nothing_asks_for_nothing(
    served: Example, alice: User, notified: list[str]
) -> None:
    enqueue(alice, served.dev_queue, 2)
    run_pass()
    enqueue(alice, served.dev_queue)
    notified.clear()

    assert run_pass().waiting == 1
    assert notified == []


def test_garbage_is_collected_before_and_after_a_pass_but_not_within(
    served: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def look(snapshot: Snapshot) -> Plan:
        seen.append(gc.isenabled())
        return decide(snapshot)

    monkeypatch.setattr(services.ENGINE, "decide", look)
    run_pass()

    assert (seen, gc.isenabled()) == ([False], True)


def test_garbage_is_collected_again_after_a_pass_that_failed(
    served: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(snapshot: Snapshot) -> Plan:
        raise ArithmeticError(snapshot.now_us)

    monkeypatch.setattr(services.ENGINE, "decide", fail)
    with pytest.raises(ArithmeticError):
        run_pass()

    assert gc.isenabled()


def test_a_kept_snapshot_comes_back_as_a_scenario_file(served: Example, alice: User) -> None:
    enqueue(alice, served.dev_queue, 2)
    run_pass()
    enqueue(alice, served.dev_queue, is_preemptible=False)
    snapshot = load(now_us=1_790_000_000_000_000).snapshot

    assert snapshot.running and snapshot.queued_groups  # noqa: PT018  # one thought: there is much to keep
    assert snapshot_unpack(snapshot_pack(snapshot)) == snapshot_to_json(snapshot)


def test_a_snapshot_kept_by_an_earlier_release_can_be_read(served: Example) -> None:
    text = snapshot_to_json(load(now_us=0).snapshot)

    assert snapshot_unpack(zlib.compress(text.encode())) == text
