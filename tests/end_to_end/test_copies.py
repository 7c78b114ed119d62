"""`rpmctl cp` from and to a running task: real server, sshd and podman."""

import os
import subprocess
from pathlib import Path

import pytest

from apps.accounts.models import User
from tests.end_to_end.running_task import WITHIN_S, RunningTask
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)


def copied(running: RunningTask, user: User, source: str, target: str) -> tuple[int, str]:
    """The exit code, and what it says."""
    paths = [one.replace("TASK", str(running.task.pk)) for one in (source, target)]
    words, environment = running.command(user, "cp", *paths)
    done = subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=scale_timeout(WITHIN_S),
    )
    return done.returncode, done.stderr.decode()


def test_files_and_folders_go_there_and_back(
    contained: RunningTask, alice: User, tmp_path: Path
) -> None:
    source = tmp_path / "data"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a b $(c)").write_bytes(os.urandom(1024 * 1024))
    file = source / "deep" / "a b $(c)"

    assert copied(contained, alice, str(source), "TASK:/dev/shm") == (0, "")
    assert copied(contained, alice, str(file), "TASK:/dev/shm/data/again") == (0, "")
    assert copied(contained, alice, "TASK:/dev/shm/data", str(tmp_path / "new")) == (0, "")
    assert copied(contained, alice, "TASK:/dev/shm/data/again", str(tmp_path)) == (0, "")

    content = file.read_bytes()
    found = {str(one.relative_to(tmp_path / "new")) for one in (tmp_path / "new").rglob("*")}
    assert found == {"again", "deep", "deep/a b $(c)"}
    assert (tmp_path / "new" / "deep" / "a b $(c)").read_bytes() == content
    assert (tmp_path / "again").read_bytes() == content
    code, words = copied(contained, alice, "TASK:/dev/shm/missing", str(tmp_path))
    assert code != 0
    assert "missing" in words
    code, words = copied(contained, alice, str(file), "TASK:/dev/shm/missing/")
    assert (code, "is no folder" in words) == (1, True)
