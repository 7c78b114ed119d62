from collections import Counter

from tools.test import summary_line


def test_the_counts_of_all_runs_stand_in_one_line() -> None:
    counts = Counter(passed=812, skipped=3, failed=1, error=2)

    line = summary_line(counts, seconds=312.2)

    assert line.strip("= ") == "1 failed, 812 passed, 3 skipped, 2 errors in 312.20s"


def test_nothing_run_is_said_plainly() -> None:
    assert summary_line(Counter(), seconds=0.5).strip("= ") == "no tests ran in 0.50s"
