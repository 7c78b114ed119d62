"""A node tells of the newest state of the database that it has ever heard of."""

import json
from pathlib import Path

from apps.execution.node import serials
from tests.execution.nodes import installed_local


def test_a_node_answers_with_the_highest_serial_that_it_had_heard_before(tmp_path: Path) -> None:
    node = installed_local(str(tmp_path / "home"))

    heard = [node.sync(serial=serial).serial for serial in (5, 9, 7, 0)]

    assert heard == [0, 5, 9, 9]
    assert json.loads((tmp_path / "home" / "serial.json").read_text())["serial"] == 9


def test_a_serial_is_never_reported_lower_whatever_comes(tmp_path: Path) -> None:
    heard = [serials.hear(str(tmp_path), serial) for serial in (3, 10**15, 2, 10**15 + 1, 1, 1)]

    assert heard == [0, 3, 10**15, 10**15, 10**15 + 1, 10**15 + 1]
