"""The checker is tested with histories that a broken system would leave: each is caught."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import KINDS, Verdict, check
from tests.chaos.history import (
    AcceptedTask,
    AttemptRow,
    History,
    KilledAttempt,
    Leftover,
    NodeDown,
    ProcessLife,
    Response,
    Silence,
    TaskRow,
    UsageRow,
    read_journal,
)
from tests.services import ports
from tests.services.requirements import need
from tests.services.timeouts import scale_timeout
from tools.packages import find_program

SOURCE = Path(__file__).parent / "workload.c"


def life(
    generation: int = 1, *, begin: float = 10, end: float = 20, node: str = "n1"
) -> ProcessLife:
    """The work of task t, alone, ended with 0."""
    return ProcessLife("t", generation, 0, node, 100 + generation, begin, end, end, 0)


def attempt(generation: int = 1, *, code: int | None = 0, target: str = "") -> AttemptRow:
    return AttemptRow("t", generation, "finished", code, target)


def good() -> History:
    """One task that ran once and completed."""
    return History(
        lives=[life()],
        tasks=[TaskRow("t", "completed", 0, 1, 0)],
        attempts=[attempt()],
        accepted=[AcceptedTask("k", "t")],
        responses=[Response(1, "/tasks/", 201), Response(2, "/tasks/", 503, has_retry_after=True)],
    )


def cut(one: ProcessLife, *, at: float) -> ProcessLife:
    """The same without its end: whatever ended it gave it no time to say so."""
    return replace(one, last_s=at, ended_s=None, code=None)


def kinds(verdict: Verdict) -> set[str]:
    """All that was broken."""
    return {breach.kind for breach in verdict.breaches}


def test_a_history_without_a_fault_is_clean() -> None:
    assert check(good()) == Verdict((), ())


def test_every_kind_has_a_seeded_bug_below() -> None:
    assert {kind for _, kind in SEEDED.values()} == set(KINDS)


def _no_fence(history: History) -> None:
    """A late launch of an older attempt is started next to the newer one."""
    history.lives = [life(2), cut(life(1, begin=12), at=15)]
    history.attempts = [attempt(1, target="queued"), attempt(2)]


def _starts_anything_that_exists(history: History) -> None:
    """The exited container of an attempt is started once more."""
    history.lives = [life(), replace(life(begin=30, end=40), pid=7)]


def _no_lease(history: History) -> None:
    """Started elsewhere while the node that fell silent goes on."""
    history.lives = [life(1, end=60), life(2, begin=40, end=50, node="n2")]
    history.attempts = [replace(attempt(1), state="lost", exit_code=None), attempt(2)]


def _lock_held_by_a_stopped_process(history: History) -> None:
    """The first copy is stopped, so it gives no sign, and lives."""
    history.lives = [
        cut(life(1), at=12),
        replace(life(2, begin=30, end=40, node="n2"), is_alone=False),
    ]
    history.attempts = [attempt(1, target="queued"), attempt(2)]


def _ledger_not_unique(history: History) -> None:
    """Two live admissions of one task, though only one of them has run yet."""
    history.attempts.append(replace(attempt(2), state="allocated", exit_code=None))
    history.attempts.append(replace(attempt(3), state="running", exit_code=None))


def _ledger_not_released(history: History) -> None:
    history.attempts = [replace(attempt(), held=1)]


def _device_given_twice(history: History) -> None:
    """Another task starts on a device whose user has not gone yet."""
    first = replace(life(), devices=("gpu-0", "gpu-1"))
    other = replace(life(begin=15, end=30), task="u", pid=7, devices=("gpu-1",))
    history.lives = [first, other]
    history.tasks.append(TaskRow("u", "completed", 0, 1, 0))
    history.attempts.append(replace(attempt(), task="u"))
    history.accepted.append(AcceptedTask("l", "u"))


def _device_given_twice_while_a_third_came_and_went(history: History) -> None:
    """The task that began last before is over by then; another one is not."""
    first = replace(life(begin=10, end=90), devices=("gpu-0",))
    _device_given_twice(history)
    history.lives = [
        first,
        replace(first, generation=2, pid=6, started_s=12, last_s=13, ended_s=13),
        replace(history.lives[1], started_s=40, last_s=50, ended_s=50, devices=("gpu-0",)),
    ]


def _booked_twice(history: History) -> None:
    history.usage = [UsageRow("usage_policyhour", "alpha", (10_000_000, 1, 1), (20_000_000, 2, 2))]


def _retry_without_token(history: History) -> None:
    """A request that was answered late is sent again and makes a second task."""
    history.accepted.append(AcceptedTask("k", "u"))
    history.tasks.append(TaskRow("u", "completed", 0, 1, 0))
    history.lives.append(replace(life(), task="u"))
    history.attempts.append(replace(attempt(), task="u"))


def _unknown_task(history: History) -> None:
    """The client's request was refused, and the task is there all the same."""
    history.tasks.append(TaskRow("u", "aborted", None, 0, 0))


def _result_dropped_before_the_commit(history: History) -> None:
    history.attempts = [attempt(code=None)]
    history.tasks = [TaskRow("t", "failed", None, 1, 0, "container_lost")]


def _success_made_up(history: History) -> None:
    history.lives = [cut(life(), at=15)]


def _requeued_by_a_silence(history: History) -> None:
    """One missed answer is taken for a lost node; the work had ended by then."""
    history.lives = [cut(life(1), at=15), life(2, begin=30, end=40, node="n2")]
    history.attempts = [replace(attempt(1), state="lost", exit_code=None), attempt(2)]


def _task_forgotten(history: History) -> None:
    history.tasks, history.attempts = [], []


def _task_stuck(history: History) -> None:
    history.lives, history.attempts = [], []
    history.tasks = [TaskRow("t", "queued", None, 0, 0)]


def _killed_by_a_stale_report(history: History) -> None:
    """A process that was stopped wakes up and takes for gone what was started meanwhile."""
    history.lives = [cut(life(), at=15)]
    history.attempts = [attempt(code=None)]
    history.tasks = [TaskRow("t", "failed", None, 1, 0, "container_lost")]


def _terminated_although_only_the_control_plane_was_away(history: History) -> None:
    history.lives = [replace(life(), code=143)]
    history.attempts = [attempt(code=143)]
    history.tasks = [TaskRow("t", "failed", 143, 1, 0)]


def _child_left_behind(history: History) -> None:
    history.leftovers = [Leftover("n1", "process", "123 job")]


def _child_lives_into_the_next_attempt(history: History) -> None:
    """What the work left behind in a session of its own still lives when it is run again."""
    child = replace(cut(life(1), at=35), pid=555, is_child=True)
    history.lives = [life(1), child, life(2, begin=30, end=40)]
    history.attempts = [attempt(1, code=0, target="queued"), attempt(2)]


def _broken_page(history: History) -> None:
    history.responses.append(Response(3, "/tasks/", 500))


def _unavailable_without_a_hint(history: History) -> None:
    history.responses.append(Response(3, "/tasks/", 503))


Bug = Callable[[History], None]
SEEDED: dict[str, tuple[Bug, str]] = {
    "no fence": (_no_fence, "overlapping"),
    "starts anything that exists": (_starts_anything_that_exists, "re-run without node loss"),
    "no lease": (_no_lease, "overlapping"),
    "lock held by a stopped process": (_lock_held_by_a_stopped_process, "overlapping"),
    "ledger not unique": (_ledger_not_unique, "ledger"),
    "device given twice": (_device_given_twice, "ledger"),
    "device given twice later": (_device_given_twice_while_a_third_came_and_went, "ledger"),
    "ledger not released": (_ledger_not_released, "ledger"),
    "booked twice": (_booked_twice, "usage"),
    "retry without token": (_retry_without_token, "doubled"),
    "unknown task": (_unknown_task, "doubled"),
    "result dropped before the commit": (_result_dropped_before_the_commit, "wrong result"),
    "success made up": (_success_made_up, "wrong result"),
    "requeued by a silence": (_requeued_by_a_silence, "re-run without node loss"),
    "task forgotten": (_task_forgotten, "lost"),
    "task stuck": (_task_stuck, "lost"),
    "killed by a stale report": (_killed_by_a_stale_report, "killed"),
    "terminated by an outage": (_terminated_although_only_the_control_plane_was_away, "killed"),
    "child left behind": (_child_left_behind, "orphans"),
    "child lives on": (_child_lives_into_the_next_attempt, "overlapping"),
    "broken page": (_broken_page, "HTTP 5xx"),
    "unavailable without a hint": (_unavailable_without_a_hint, "HTTP 5xx"),
}


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_bug_is_caught(name: str) -> None:
    bug, want_kind = SEEDED[name]
    history = good()

    bug(history)

    assert check(history).count(want_kind) >= 1


@pytest.mark.parametrize(
    ("first", "facts", "retries", "want_reason"),
    [
        pytest.param(
            replace(attempt(1, code=None), state="lost"),
            {"downs": [NodeDown("n1", 15)]},
            0,
            "node loss",
            id="its node went down",
        ),
        pytest.param(
            attempt(1, code=137, target="queued"), {}, 0, "preempted", id="it was preempted"
        ),
        pytest.param(attempt(1, code=3), {}, 2, "retry", id="it failed and has retries"),
        pytest.param(
            attempt(1, code=None),
            {"unwatched": [KilledAttempt("t", 1, 15)]},
            2,
            "retry",
            id="nobody has its result and it has retries",
        ),
        pytest.param(
            attempt(1, code=None),
            {"killed": [KilledAttempt("t", 1, 15)]},
            2,
            "retry",
            id="the run killed it and it has retries",
        ),
    ],
)
def test_work_may_run_again_for_a_reason(
    first: AttemptRow, facts: dict[str, list[object]], retries: int, want_reason: str
) -> None:
    history = good()
    history.lives = [cut(life(1), at=15), life(2, begin=30, end=40, node="n2")]
    history.attempts = [first, attempt(2)]
    history.tasks = [TaskRow("t", "completed", 0, 2, retries)]
    for name, value in facts.items():
        setattr(history, name, value)

    verdict = check(history)

    assert verdict.breaches == ()
    assert verdict.reruns_for(want_reason) == 1


def leased(state: str = "lost") -> History:
    """Started elsewhere after its node was out of reach for longer than its lease."""
    history = good()
    history.lives = [cut(life(1), at=15), life(2, begin=30, end=40, node="n2")]
    history.attempts = [replace(attempt(1), state=state, exit_code=None), attempt(2)]
    history.tasks = [replace(history.tasks[0], generation=2, on_node_loss="requeue")]
    history.silences = [Silence("n1", 8, 29)]
    return history


def test_work_whose_lease_has_ended_runs_elsewhere() -> None:
    verdict = check(leased())

    assert verdict.breaches == ()
    assert verdict.reruns_for("node loss") == 1


@pytest.mark.parametrize(
    ("spoil", "want_kind"),
    [
        pytest.param({"silences": []}, "killed", id="its node could be reached all the time"),
        pytest.param({"silences": [Silence("n2", 8, 29)]}, "killed", id="it was another node"),
        pytest.param({"silences": [Silence("n1", -90, -50)]}, "killed", id="that was before"),
        pytest.param({"silences": [Silence("n1", 16, 480)]}, "killed", id="that was afterwards"),
        pytest.param(
            {"tasks": [TaskRow("t", "completed", 0, 2, 0)]}, "killed", id="its queue waits"
        ),
    ],
)
def test_only_a_lease_that_could_end_is_an_excuse(spoil: dict[str, Any], want_kind: str) -> None:
    history = leased()
    for name, value in spoil.items():
        setattr(history, name, value)

    assert check(history).count(want_kind) == 1


def test_a_node_that_went_down_before_or_after_is_no_excuse() -> None:
    history = good()
    history.lives = [cut(life(1), at=15), life(2, begin=30, end=40, node="n2")]
    history.attempts = [replace(attempt(1), state="lost", exit_code=None), attempt(2)]
    history.downs = [NodeDown("n1", 5), NodeDown("n1", 31), NodeDown("n2", 20)]

    assert kinds(check(history)) == {"killed", "re-run without node loss"}


def test_an_end_that_its_node_took_along_is_excused() -> None:
    history = good()
    history.lives = [life(1), life(2, begin=30, end=40)]
    history.attempts = [replace(attempt(1), state="lost", exit_code=None), attempt(2)]
    history.downs = [NodeDown("n1", 20.5)]

    assert check(history).breaches == ()


def test_a_result_that_nobody_could_keep_is_counted_and_no_breach() -> None:
    history = good()
    history.attempts = [attempt(code=None)]
    history.unwatched = [KilledAttempt("t", 1, 15)]

    verdict = check(history)

    assert verdict.breaches == ()
    assert verdict.unknown_results == 1


def test_a_journal_is_read_as_the_work_wrote_it() -> None:
    text = (
        "start 1000000000 t 1 0 5 alone=a,b\nbeat 1500000000 t 1 0 5 -\nbeat 1600000000 t 1 0 6 -\n"
        "end 2000000000 t 1 0 5 3\nstart 4000000000 t 2 0 5 overlap=\n"
    )

    assert read_journal("n1", text) == [
        ProcessLife("t", 1, 0, "n1", 5, 1.0, 2.0, 2.0, 3, devices=("a", "b")),
        ProcessLife("t", 1, 0, "n1", 6, 1.6, 1.6, is_child=True),
        ProcessLife("t", 2, 0, "n1", 5, 4.0, 4.0, is_alone=False),
    ]


def test_real_work_tells_of_a_copy_that_is_stopped(tmp_path: Path) -> None:
    if find_program("cc") is None:
        need("a C compiler", because="there is no cc")
    program = tmp_path / "job"
    subprocess.run(["cc", "-o", program, SOURCE], check=True)
    journal = tmp_path / "journal"

    def start(generation: int, seconds: str) -> subprocess.Popen[bytes]:
        own = {"RPM_TASK_ID": "t", "RPM_ATTEMPT": str(generation)}
        folders = {"CHAOS_HERE": str(tmp_path), "CHAOS_LOCKS": str(tmp_path)}
        return subprocess.Popen([program, seconds, "0", "plain"], env=own | folders)

    first = start(1, "60")
    ports.wait_until(lambda: journal.exists() and b"beat" in journal.read_bytes(), what="it beats")
    os.kill(first.pid, signal.SIGSTOP)
    assert start(2, "0.1").wait(scale_timeout(10)) == 0
    first.kill()
    first.wait()
    assert start(3, "0.1").wait(scale_timeout(10)) == 0

    lives = read_journal("n1", journal.read_text())
    assert [(one.generation, one.is_alone) for one in lives] == [(1, True), (2, False), (3, True)]
    assert lives[0].started_s <= time.clock_gettime(time.CLOCK_BOOTTIME)
