"""Fixtures of installations that several tests share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that containers may write to; no user in them is root."""
    with tempfile.TemporaryDirectory(prefix="rpm-test-shared-") as name:
        folder = Path(name)
        journal = folder / "journal"
        journal.touch()
        os.chmod(journal, 0o666)
        os.chmod(folder, 0o755)
        yield folder
