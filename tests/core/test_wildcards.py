"""Patterns with * and ? match as `fnmatch` says."""

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from apps.core.wildcards import Wildcards


@given(st.lists(st.text("AB*?", max_size=7), max_size=4), st.text("AB", max_size=9))
def test_patterns_match_together_as_each_by_itself(patterns: list[str], name: str) -> None:
    want = any(fnmatchcase(name, pattern) for pattern in patterns)

    assert Wildcards(patterns).match(name) is want
