"""`rpmctl cp` from and to a running task: real server, sshd and podman."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from apps.accounts.models import User
from apps.events.models import AuditEntry
from tests.end_to_end.running_task import WITHIN_S, RunningTask
from tests.services import ports
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
    # All of it is sent at once: no connection ends before its words are read.
    small = tmp_path / "small"
    small.touch()
    code, words = copied(contained, alice, str(small), "TASK:/dev/shm/missing/")
    assert (code, "is no folder" in words) == (1, True)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_is_cut_leaves_the_file_that_was_there(
    process: RunningTask, alice: User, tmp_path: Path, end: signal.Signals
) -> None:
    source, folder = tmp_path / "large", tmp_path / "there"
    source.touch()
    os.truncate(source, 1024**3)
    folder.mkdir()
    target = folder / "file"
    target.write_text("earlier")

    def has_begun() -> bool:
        return any(one.stat().st_size > 100_000 for one in folder.iterdir())

    words, environment = process.command(alice, "cp", str(source), f"{process.task.pk}:{target}")
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as program:
        try:
            ports.wait_until(lambda: has_begun() or program.poll() is not None, what="its bytes")
            program.send_signal(end)
            code = program.wait(scale_timeout(WITHIN_S))
        finally:
            program.kill()
    ports.wait_until(
        lambda: AuditEntry.objects.filter(verb="stream.ended").exists(), what="the end there"
    )

    assert target.read_text() == "earlier"
    if end == signal.SIGINT:
        assert (code, list(folder.iterdir())) == (130, [target])


def test_a_file_replaces_what_a_link_names_and_a_device_is_written_to(
    process: RunningTask, alice: User, tmp_path: Path
) -> None:
    source, folder = tmp_path / "new", tmp_path / "there"
    source.write_text("new")
    source.chmod(0o640)
    folder.mkdir()
    (folder / "file").write_text("earlier")
    (folder / "link").symlink_to("file")
    (folder / "null").symlink_to(os.devnull)

    for name in ("link", "null"):
        assert copied(process, alice, str(source), f"TASK:{folder}/{name}") == (0, "")

    assert {one.name for one in folder.iterdir()} == {"file", "link", "null"}
    assert ((folder / "link").is_symlink(), (folder / "file").read_text()) == (True, "new")
    assert (folder / "file").stat().st_mode & 0o777 == 0o640
