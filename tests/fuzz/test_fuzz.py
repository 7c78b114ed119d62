"""A thousand requests made from the schema; `make fuzz` makes twenty thousand."""

from pathlib import Path

from tests.browser.demonstration import demonstration
from tests.fuzz.fuzzer import fuzz, said


def test_every_answer_is_as_documented_and_none_is_a_server_error(tmp_path: Path) -> None:
    with demonstration(tmp_path) as installation:
        outcome = fuzz(installation, requests=1000, seed=7)

    # A few operations can be asked in fewer ways.
    assert outcome.requests >= 900
    assert outcome.problems == {}, said(outcome)
