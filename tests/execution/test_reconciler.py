"""The table of docs/execution.md, "When a component is unavailable", cell by cell."""

from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.execution.protocol.answers import ReportedMember
from apps.execution.protocol.requests import MemberKey
from apps.execution.reconciler import (
    Acknowledge,
    Action,
    Kill,
    KillAndRequeue,
    Launch,
    MemberRow,
    NodeReport,
    NoteLost,
    NoteResult,
    NoteRunning,
    NoteStopped,
    NoteVanished,
    Phase,
    Quarantine,
    RenewLease,
    Stop,
    UnknownMembers,
    reconcile,
)

State = Literal["created", "running", "exited"]

MEMBER = MemberKey("t1", 2, 0)
OLDER = MemberKey("t1", 1, 0)
NOBODY = UnknownMembers({}, may_be_killed=True)


def row(phase: Phase, *, boot: str = "boot", not_after: float = 50) -> MemberRow:
    return MemberRow(MEMBER, phase, boot, not_after)


def seen(
    state: State, *, member: MemberKey = MEMBER, is_stop_asked: bool = False
) -> ReportedMember:
    return ReportedMember(
        member.task_id, member.generation, member.rank, state, is_stop_asked, exit_code=0
    )


def report(*members: ReportedMember) -> NodeReport:
    return NodeReport("boot", 100.0, members)


@pytest.mark.parametrize(
    ("phase", "state", "want"),
    [
        pytest.param(Phase.STARTING, "created", Launch(MEMBER), id="starting, created"),
        pytest.param(
            Phase.STARTING, "running", NoteRunning(seen("running")), id="starting, running"
        ),
        pytest.param(Phase.STARTING, "exited", NoteResult(seen("exited")), id="starting, exited"),
        pytest.param(Phase.RUNNING, None, NoteVanished(MEMBER), id="running, absent"),
        pytest.param(Phase.RUNNING, "created", KillAndRequeue(MEMBER), id="running, created"),
        pytest.param(Phase.RUNNING, "running", RenewLease(MEMBER), id="running, running"),
        pytest.param(Phase.RUNNING, "exited", NoteResult(seen("exited")), id="running, exited"),
        pytest.param(Phase.STOPPING, None, NoteStopped(MEMBER), id="stopping, absent"),
        pytest.param(Phase.STOPPING, "created", Kill(MEMBER), id="stopping, created"),
        pytest.param(Phase.STOPPING, "running", Stop(MEMBER), id="stopping, running"),
        pytest.param(Phase.STOPPING, "exited", NoteResult(seen("exited")), id="stopping, exited"),
        pytest.param(Phase.OVER, "created", Kill(MEMBER), id="over, created"),
        pytest.param(Phase.OVER, "running", Kill(MEMBER), id="over, running"),
        pytest.param(Phase.OVER, "exited", Acknowledge(MEMBER), id="over, exited"),
    ],
)
def test_each_cell_of_the_table_asks_for_its_action(
    phase: Phase, state: State | None, want: Action
) -> None:
    there = () if state is None else (seen(state),)

    actions = reconcile([row(phase)], report(*there), NOBODY, now=0)

    assert actions == (want,)


def test_what_is_over_and_absent_is_fine() -> None:
    assert reconcile([row(Phase.OVER)], report(), NOBODY, now=0) == ()


@pytest.mark.parametrize(
    ("boot", "not_after", "want"),
    [
        pytest.param("boot", 150.0, (), id="its launch may still arrive"),
        pytest.param("boot", 99.0, (Launch(MEMBER),), id="its launch came too late"),
        pytest.param("before", 150.0, (Launch(MEMBER),), id="the node has booted since"),
        pytest.param("", 0.0, (Launch(MEMBER),), id="never sent"),
    ],
)
def test_an_absent_member_is_launched_again_once_its_launch_cannot_arrive(
    boot: str, not_after: float, want: tuple[Action, ...]
) -> None:
    starting = row(Phase.STARTING, boot=boot, not_after=not_after)

    assert reconcile([starting], report(), NOBODY, now=0) == want


def test_what_ran_before_the_node_booted_is_lost() -> None:
    running = row(Phase.RUNNING, boot="before")

    assert reconcile([running], report(), NOBODY, now=0) == (NoteLost(MEMBER),)


def test_a_stop_that_the_node_has_heard_is_not_sent_again() -> None:
    there = report(seen("running", is_stop_asked=True))

    assert reconcile([row(Phase.STOPPING)], there, NOBODY, now=0) == (RenewLease(MEMBER),)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize(
    ("state", "want"),
    [
        pytest.param("created", Kill(OLDER), id="created"),
        pytest.param("running", Kill(OLDER), id="running"),
        pytest.param("exited", Acknowledge(OLDER), id="exited"),
    ],
)
def test_an_older_generation_is_ended(phase: Phase, state: State, want: Action) -> None:
    actions = reconcile([row(phase)], report(seen(state, member=OLDER)), NOBODY, now=0)

    assert actions[0] == want


@pytest.mark.parametrize(
    ("since", "may_be_killed", "want"),
    [
        pytest.param(None, True, Quarantine(MEMBER), id="just seen"),
        pytest.param(500.0, True, Quarantine(MEMBER), id="not ten minutes ago"),
        pytest.param(400.0, True, Kill(MEMBER), id="ten minutes ago"),
        pytest.param(0.0, False, Quarantine(MEMBER), id="the database was restored"),
    ],
)
def test_what_the_database_does_not_know_is_shown_before_it_is_killed(
    since: float | None, may_be_killed: bool, want: Action
) -> None:
    times = {} if since is None else {MEMBER: since}

    actions = reconcile([], report(seen("running")), UnknownMembers(times, may_be_killed), now=1000)

    assert actions == (want,)


MEMBERS = st.builds(MemberKey, st.sampled_from(["a", "b"]), st.integers(1, 3), st.integers(0, 1))
STATES = st.sampled_from(["created", "running", "exited"])


@given(
    st.dictionaries(MEMBERS, st.sampled_from(list(Phase))),
    st.dictionaries(MEMBERS, STATES),
    st.randoms(use_true_random=False),
)
def test_every_member_gets_at_most_one_action_in_any_order_of_the_input(
    phases: dict[MemberKey, Phase], states: dict[MemberKey, State], random: Random
) -> None:
    rows = [MemberRow(member, phase, "boot", 50) for member, phase in phases.items()]
    there = [seen(state, member=member) for member, state in states.items()]
    want = reconcile(rows, report(*there), NOBODY, now=0)

    random.shuffle(rows)
    random.shuffle(there)

    assert reconcile(rows, report(*there), NOBODY, now=0) == want
    members = [_member(action) for action in want]
    assert len(members) == len(set(members))
    for member, state in states.items():
        # Nothing that is not in order stays without an action.
        assert member in members, state


def _member(action: Action) -> MemberKey:
    if isinstance(action, NoteRunning | NoteResult):
        return action.report.member
    return action.member
