"""Waking those who wait must never hurt the one who wakes."""

import os
from pathlib import Path

import pytest

from apps.execution.node import state_files, sync


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

    state_files.notify(str(tmp_path))

    assert fifo.exists()


def test_whoever_begins_to_wait_while_others_are_woken_is_woken_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkfifo

    def make_and_notify(path: str, mode: int) -> None:
        make(path, mode)
        state_files.notify(str(tmp_path))

    monkeypatch.setattr(os, "mkfifo", make_and_notify)

    with sync.waiter(str(tmp_path)) as changes:
        assert changes is not None
        state_files.notify(str(tmp_path))
        assert os.read(changes, 10) == b"!"

    assert list((tmp_path / "waiters").iterdir()) == []
