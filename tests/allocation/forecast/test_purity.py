import ast
from pathlib import Path

import pytest

ALLOCATION = Path(__file__).resolve().parents[3] / "apps" / "allocation"
# The one module that may ask the database.
EDGE = "history.py"
FORECAST = "apps.allocation.forecast"
PURE = ("apps.allocation.engine", "apps.allocation.simulation", FORECAST)
PLAIN = frozenset(
    {"__future__", "bisect", "collections", "dataclasses", "enum", "heapq", "itertools", "random"}
)
MODULES = sorted(
    path
    for folder in ("forecast", "simulation")
    for path in (ALLOCATION / folder).glob("*.py")
    if path.name != EDGE
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_forecast_knows_the_engine_and_plain_python_only(path: Path) -> None:
    names = [
        node.module or ""
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    ]

    assert [
        name for name in names if not name.startswith(PURE) and name.split(".")[0] not in PLAIN
    ] == []
    assert not any(name.startswith(f"{FORECAST}.history") for name in names)
