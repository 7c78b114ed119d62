import gzip
from pathlib import Path

import pytest

from apps.allocation.replay.trace import read_trace
from apps.core.errors import BadInput
from tests.allocation.replay.histories import task

TEXT = "submit_s,duration_s,gpus,team\n5,10,2,a\n-3,7,1,b\n"


def test_jobs_come_in_order_of_submission(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TEXT)

    assert read_trace(path) == (task(2, -3, 7, 1, "b"), task(1, 5, 10, 2, "a"))


def test_a_compressed_trace_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))

    assert [one.number for one in read_trace(path)] == [2, 1]


def test_columns_may_come_in_any_order_and_with_others(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("team,user,gpus,duration_s,submit_s\na,eve,0.5,3,1\n")

    (found,) = read_trace(path)

    assert (found.gpu_milli, found.team, found.submitted_s) == (500, "a", 1)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("submit_s,gpus,team\n1,1,a\n", "no column duration_s", id="column"),
        pytest.param(TEXT + "x,1,1,a\n", "line 4: ", id="not a number"),
        pytest.param(TEXT + "1,-1,1,a\n", "line 4: duration_s is negative", id="duration"),
        pytest.param(TEXT + "1,1,0,a\n", "line 4: gpus must be", id="no GPU"),
        pytest.param(TEXT + "1,1,1.5,a\n", "line 4: gpus must be", id="one and a half"),
        pytest.param(TEXT + "1,1,1,\n", "line 4: team is empty", id="team"),
        pytest.param(TEXT + "1,1,1\n", "line 4: has no team", id="short line"),
        pytest.param(TEXT + "1\n", "line 4: has no duration_s, gpus, team", id="shorter line"),
        pytest.param("submit_s,duration_s,gpus,team\n", "holds no job", id="empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)

    with pytest.raises(BadInput, match=want):
        read_trace(path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    rows = "".join(f"{at},{at * 7919 % 1000},1,a\n" for at in range(2000))
    packed = bytearray(gzip.compress((TEXT + rows).encode()))
    packed[40:60] = bytes(byte ^ 0x5A for byte in packed[40:60])
    path.write_bytes(packed)

    with pytest.raises(BadInput, match=r"trace\.csv\.gz"):
        read_trace(path)


def test_the_mark_of_a_spreadsheet_is_no_part_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TEXT, encoding="utf-8-sig")

    assert len(read_trace(path)) == 2


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"absent\.csv"):
        read_trace(tmp_path / "absent.csv")
