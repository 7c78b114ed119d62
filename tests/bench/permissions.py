"""The cost of permissions: the same pages for an administrator and for members."""

from dataclasses import dataclass

from tests.bench.installation import result_of


@dataclass(frozen=True, slots=True)
class Figure:
    """Median milliseconds and queries of a page, per reader; `empty_ms` of a page with nothing."""

    path: str
    ms: dict[str, float]
    queries: dict[str, int]
    empty_ms: dict[str, float]


def measure() -> list[Figure]:
    """Ask all pages in turns, as each reader."""
    return [Figure(**one) for one in result_of("tests.bench.permissions_installation")]
