"""The long test of this folder runs only where it is asked for: `pytest tests/chaos -m chaos`."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker that this file understands."""
    config.addinivalue_line("markers", "chaos: minutes of faults; left out unless asked for")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the marked tests out, unless the choice of markers names them."""
    if "chaos" in str(config.getoption("markexpr")):
        return
    left_out = [item for item in items if item.get_closest_marker("chaos")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
