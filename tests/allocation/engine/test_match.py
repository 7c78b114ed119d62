"""Groups that no pool has capacity for are left out of a match, and decisions stay the same."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from apps.allocation.engine import decision
from apps.allocation.engine.decision import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import QueuedGroup, QueuedTask, Snapshot
from apps.allocation.engine.steps import match
from tests.allocation.engine import plain_match
from tests.allocation.engine.families import EVERYTHING, PACKED, TAKING, one_in
from tests.allocation.engine.laws import bounds, service
from tests.allocation.engine.laws.history import SECOND, Case, merged, moments
from tests.allocation.engine.strategies import (
    USERS,
    configurations,
    profile_requests,
    snapshots,
)


def plain_decide(snapshot: Snapshot) -> Plan:
    with patch.object(decision, "withdraw_short", plain_match.withdraw_short):
        return decide(snapshot)


def quick_decide(snapshot: Snapshot) -> Plan:
    """Decide without waiting for many matches before groups without a chance are left out."""
    with patch.object(match, "PLAIN_MATCHES", 0):
        return decide(snapshot)


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """Many groups of both kinds, few sizes, and reservations larger than the pools."""
    kind = replace(
        draw(st.sampled_from((EVERYTHING, TAKING, PACKED))),
        has_pauses=False,
        has_protection=False,
        has_limits=draw(one_in(3)),
        can_be_strict=draw(one_in(4)),
        can_lack_backfill=draw(st.booleans()),
    )
    base = draw(configurations(kind))
    reserved = st.integers(0, 14).map(lambda gpus: Quantities.of({"gpu": 1000 * gpus}))
    base = replace(
        base, policies=tuple(replace(one, reserved=draw(reserved)) for one in base.policies)
    )
    count = draw(st.integers(6, 24))
    groups = tuple(draw(queued_group(base, f"t{number:02d}")) for number in range(count))
    return replace(base, queued_groups=merged(groups))


@st.composite
def queued_group(draw: st.DrawFn, base: Snapshot, prefix: str) -> QueuedGroup:
    queue = draw(st.sampled_from(base.queues))
    [profile] = [one for one in base.profiles if one.id == queue.profile]
    times = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    return QueuedGroup(
        queue=queue.id,
        request=draw(profile_requests()) if draw(one_in(4)) else profile.request,
        count=0,
        heads=tuple(
            QueuedTask(time * SECOND, f"{prefix}{place}")
            for place, time in enumerate(sorted(times))
        ),
        replicas=profile.replicas,
        priority=-draw(st.integers(0, 12)),
        is_preemptible=draw(st.booleans()),
        user=draw(st.sampled_from(USERS)),
    )


@st.composite
def of_one_size(draw: st.DrawFn) -> Snapshot:
    """Crowded, in one pool, by tasks of one size."""
    base = draw(crowded())
    request = Quantities.of({"gpu": 1000 * draw(st.integers(1, 3))})
    [pool, *_] = base.pools
    return replace(
        base,
        pools=(replace(pool, profiles=tuple(one.id for one in base.profiles)),),
        profiles=tuple(
            replace(one, request=request, replicas=1, models=(), pools=(pool.id,))
            for one in base.profiles
        ),
        queued_groups=merged(
            tuple(replace(one, request=request, replicas=1) for one in base.queued_groups)
        ),
    )


@given(st.one_of(crowded(), snapshots(EVERYTHING), snapshots(TAKING)))
def test_a_match_decides_what_the_plain_match_decides(snapshot: Snapshot) -> None:
    plan, want = decide(snapshot), plain_decide(snapshot)

    # Beyond, tasks of different sizes may come in another order; the laws hold for them too.
    assume(want.figures.matches <= match.PLAIN_MATCHES)
    assert plan == want


@given(of_one_size())
def test_groups_of_one_size_that_are_left_out_change_no_decision(snapshot: Snapshot) -> None:
    plan, want = quick_decide(snapshot), plain_decide(snapshot)

    assert replace(plan, figures=want.figures) == want


@given(crowded())
def test_laws_hold_where_groups_are_left_out(snapshot: Snapshot) -> None:
    """Not that of envy: with so many sizes, the plain match breaks it in the same states."""
    for moment in moments(Case(snapshot, ()), quick_decide):
        bounds.nothing_is_exceeded(moment)
        service.nothing_is_wasted(moment)
        service.strict_order_holds(moment)


def test_generated_matches_often_leave_groups_out() -> None:
    saved = 0

    @settings(
        max_examples=100,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        derandomize=True,
        database=None,
    )
    @given(crowded())
    def look(snapshot: Snapshot) -> None:
        nonlocal saved
        saved += quick_decide(snapshot).figures.matches < plain_decide(snapshot).figures.matches

    look()

    assert saved >= 10
