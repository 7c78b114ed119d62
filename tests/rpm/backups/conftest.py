"""An installation at rest for every test of the commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rpm.backups.site import Site, copied, migrated


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with migrated(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def site(untouched: Site, tmp_path: Path) -> Iterator[Site]:
    with copied(untouched, tmp_path) as site:
        yield site


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "file")
