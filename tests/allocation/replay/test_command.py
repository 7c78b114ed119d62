import io
import json
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

TEXT = "submit_s,duration_s,gpus,team\n-100,300,2,a\n0,7200,2,a\n60,600,1,b\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TEXT)
    return path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def replay(*arguments: object) -> str:
    out = io.StringIO()
    call_command("replay", *map(str, arguments), stdout=out)
    return out.getvalue()


def test_the_usual_regimes_are_partitions_one_line_and_policies(trace: Path) -> None:
    lines = replay(trace, "--gpus", 2).splitlines()

    assert [line.split()[0] for line in lines[1:4]] == ["static", "fifo", "reclaim/priority"]


def test_json_has_one_line_for_each_regime(trace: Path) -> None:
    out = replay(trace, "--gpus", 2, "--json", "--regime", "fifo", "--regime", "none/fair_share")

    found = [json.loads(line) for line in out.splitlines()]
    assert [one["regime"] for one in found] == ["fifo", "none/fair_share"]
    assert found[0]["overall"]["jobs"] == 2


def test_all_regimes_can_be_asked_for(trace: Path) -> None:
    out = replay(trace, "--gpus", 2, "--json", "--regime", "all")

    assert len(out.splitlines()) == 9


def test_window_and_checkpoint_are_times_with_units(trace: Path) -> None:
    out = replay(
        trace, "--gpus", 2, "--json", "--from=-2m", "--until", "60", "--checkpoint", "never",
        "--regime", "fifo",
    )  # fmt: skip

    terms = json.loads(out)["terms"]
    assert terms == {"gpus": 2, "start_s": -120, "end_s": 60, "checkpoint_s": None}


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["--gpus", 0], "at least 1", id="no GPUs"),
        pytest.param(["--gpus", 2, "--from", "9d"], "No job was submitted", id="empty window"),
        pytest.param(["--gpus", 2, "--until", "soon"], "not a time", id="time"),
        pytest.param(["--gpus", 2, "--checkpoint", "0"], "at least a second", id="checkpoint"),
    ],
)
def test_what_cannot_be_is_refused(trace: Path, arguments: list[object], want: str) -> None:
    with pytest.raises(CommandError, match=want):
        replay(trace, *arguments)


def test_a_bad_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"absent\.csv"):
        replay(tmp_path / "absent.csv", "--gpus", 2)


def test_a_terminal_shows_how_far_it_is_and_nothing_is_left_of_it(trace: Path) -> None:
    terminal = Terminal()

    call_command(
        "replay", str(trace), "--gpus", "2", "--regime", "fifo",
        stdout=io.StringIO(), stderr=terminal,
    )  # fmt: skip

    shown = terminal.getvalue()
    assert "fifo" in shown
    assert "100 %" in shown
    assert shown.endswith("\r\033[K")


def test_jobs_that_never_fit_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("submit_s,duration_s,gpus,team\n0,60,1,a\n5,60,9,a\n")

    out = replay(path, "--gpus", 2, "--regime", "fifo", "--regime", "reclaim/priority")

    assert out.count("1 job asks for more GPUs than there are, and never ran.") == 2
    assert "fifo: 1 pass. 1 job" in out
