"""Waking those who wait must never hurt the one who wakes."""

import os
from pathlib import Path

import pytest

from apps.execution.node import homes


def test_a_waiter_that_leaves_while_it_is_woken_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "waiters").mkdir()
    fifo = tmp_path / "waiters" / "1"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    write = os.write

    def write_late(descriptor: int, content: bytes) -> int:
        os.close(reader)
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", write_late)

    homes.ring(str(tmp_path))

    assert fifo.exists()
