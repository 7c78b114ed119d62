"""The folder of an installation is closed to other accounts at every start."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from rpm import env, health
from rpm.env import BadEnvironment, InstallationFolder

ROOT = Path(__file__).resolve().parents[2]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def manage(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of a user whose files are open to all accounts."""
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=kept | {"RPM_HOME": str(home), "DJANGO_SETTINGS_MODULE": "rpm.settings"},
        check=False,
        capture_output=True,
        text=True,
        umask=0o022,
    )


def test_a_folder_that_was_open_is_closed_with_all_that_is_written_in_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)

    done = manage(home, "migrate", "--verbosity", "0")

    assert done.returncode == 0, done.stderr
    assert mode(home) == 0o700
    assert mode(home / "rpm.sqlite3") == 0o600


def test_a_database_that_was_open_is_closed_at_the_next_start(tmp_path: Path) -> None:
    database, journal = tmp_path / "rpm.sqlite3", tmp_path / "rpm.sqlite3-wal"
    for path in (database, journal):
        path.touch()
        path.chmod(0o644)

    env.database(f"sqlite:///{database}")

    assert [mode(database), mode(journal)] == [0o600, 0o600]


@pytest.mark.parametrize(
    ("before", "there"), [(0o755, "someones-notes"), (0o1777, "secret-key"), (0o1777, "")]
)
def test_a_folder_that_others_use_is_left_as_it_is_and_refused(
    before: int, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "shared"
    home.mkdir()
    if there:
        (home / there).touch()
    home.chmod(before)
    monkeypatch.setenv("RPM_HOME", str(home))

    with pytest.raises(BadEnvironment, match=f"RPM_HOME={home} is open to every account"):
        env.home()

    assert home.stat().st_mode & 0o7777 == before


@pytest.mark.django_db
def test_the_doctor_says_what_others_may_read(tmp_path: Path, settings: Any) -> None:
    database = Path(str(connection.settings_dict["NAME"]))
    if connection.vendor == "sqlite" and database.is_file():
        # That of the tests is made without the command that starts an installation.
        database.chmod(0o600)
    tmp_path.chmod(0o700)
    settings.HOME = InstallationFolder(tmp_path)
    assert health.check_home().is_fine

    tmp_path.chmod(0o755)
    found = health.check_home()

    assert not found.is_fine
    assert str(tmp_path) in found.words
    assert found.fix == f"Run chmod go= {tmp_path} as the owner."
