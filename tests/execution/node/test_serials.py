"""A node tells of the newest state of the database that it has ever heard of."""

import json
from pathlib import Path

import pytest

from apps.execution.node import serials
from apps.execution.node.serials import Serial
from tests.execution.nodes import installed_local

SIGNED = "a" * 64
FORGED = "f" * 64


def test_a_node_answers_with_the_highest_serial_that_it_had_heard_before(tmp_path: Path) -> None:
    node = installed_local(str(tmp_path / "home"))

    answers = [node.sync(serial=n, serial_signature=f"{n:064x}") for n in (5, 9, 7)] + [node.sync()]

    assert [one.serial for one in answers] == [0, 5, 9, 9]
    assert [one.serial_signature for one in answers] == ["", f"{5:064x}", f"{9:064x}", f"{9:064x}"]
    assert json.loads((tmp_path / "home" / "serial.json").read_text())["serial"] == 9


def test_a_serial_is_never_reported_lower_whatever_comes(tmp_path: Path) -> None:
    answers = [Serial(n, f"{n:064x}") for n in (3, 10**15, 2, 10**15 + 1, 1, 1)]

    known = [serials.record(str(tmp_path), serial).number for serial in answers]

    assert known == [0, 3, 10**15, 10**15, 10**15 + 1, 10**15 + 1]


@pytest.mark.parametrize(
    "content",
    [
        {"serial": 2**63 - 20, "synced": ""},
        {"serial": 2**70, "signature": SIGNED},
        {"serial": "many", "signature": SIGNED},
        {"serial": 9, "signature": ""},
        {"serial": 9, "signature": "\u00e9" * 64},
        {"serial": 9, "signature": "x\0y"},
        {"serial": 9, "signature": SIGNED + "\n"},
    ],
)
def test_a_serial_without_a_signature_is_none_and_the_next_one_replaces_it(
    tmp_path: Path, content: dict[str, object]
) -> None:
    (tmp_path / "serial.json").write_text(json.dumps(content))

    known = [serials.record(str(tmp_path), Serial(number, SIGNED)) for number in (5, 6)]

    assert known == [Serial(0, ""), Serial(5, SIGNED)]


def test_what_the_control_plane_never_signed_is_replaced(tmp_path: Path) -> None:
    home = str(tmp_path)
    serials.record(home, Serial(2**62, FORGED))

    known = [
        serials.record(home, Serial(5, SIGNED), refused=4),
        serials.record(home, Serial(6, SIGNED), refused=2**62),
        serials.record(home, Serial(6, SIGNED)),
    ]

    assert known == [Serial(2**62, FORGED), Serial(2**62, FORGED), Serial(6, SIGNED)]
