"""The folder of a task on its checkpoint volume, and whether the task is to resume."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from apps.execution.node import allowlist, task_files
from apps.execution.node.checkpoints import with_folder
from apps.execution.node.specs import Spec
from tests.execution.node.test_arguments import spec

NOBODY = 65_534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to others")


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(allowlist.VARIABLE, str(tmp_path / "allowlist.json"))
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def launched(volume: Path, **changes: Any) -> Spec:
    """What is launched for a task that may have saved something on this volume."""
    one = {"source": str(volume), "target": "/volumes/ckpt", "read_only": False}
    plain: dict[str, Any] = {
        "volumes": [one | {"checkpoints": True}],
        "environment": {"RPM_RESUME": "1"},
        "resume_if_saved": True,
        "uid": NOBODY,
        "gid": NOBODY,
    }
    return with_folder(spec(**plain | changes), str(volume.parent / "home"))


def resumes(volume: Path, **changes: Any) -> str:
    return launched(volume, **changes).environment["RPM_RESUME"]


def test_the_node_makes_the_folder_and_gives_it_to_the_task(volume: Path) -> None:
    assert resumes(volume) == "0"

    status = (volume / "t1").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (NOBODY, NOBODY, 0o700)


def test_it_resumes_once_something_is_saved_and_its_folder_stays_as_it_is(volume: Path) -> None:
    launched(volume)
    (volume / "t1" / "state").touch()
    (volume / "t1").chmod(0o755)

    assert resumes(volume) == "1"

    assert (volume / "t1").stat().st_mode & 0o777 == 0o755
    assert (volume / "t1" / "state").exists()


def test_a_task_that_said_that_it_saved_and_a_gang_resume_alike_whatever_lies_there(
    volume: Path,
) -> None:
    assert resumes(volume, resume_if_saved=False) == "1"

    assert (volume / "t1").is_dir()


@pytest.mark.parametrize("kind", ["a link", "a link from above", "a file"])
def test_what_stands_in_its_place_is_neither_followed_nor_changed(
    volume: Path, tmp_path: Path, kind: str
) -> None:
    victim = tmp_path / "victim"
    (victim / "t1").mkdir(parents=True)
    (victim / "t1" / "state").touch()
    if kind == "a link":
        (volume / "t1").symlink_to(victim)
    elif kind == "a link from above":
        volume.rmdir()
        volume.symlink_to(victim)
        os.chown(volume, NOBODY, NOBODY, follow_symlinks=False)
    else:
        (volume / "t1").write_text("kept")

    assert resumes(volume) == "0"

    assert (victim / "t1").stat().st_uid == 0
    assert victim.stat().st_uid == 0


def test_nothing_is_made_where_the_node_allows_no_volume(volume: Path) -> None:
    allowed = '{"runtimes": ["process"], "mounts": [], "capabilities": [], "devices": [], '
    (volume.parent / "allowlist.json").write_text(allowed + '"host_network": false, "root": false}')

    assert resumes(volume, runtime="process", image="") == "1"

    assert list(volume.iterdir()) == []


def test_a_volume_that_is_read_only_stays_as_it_is(volume: Path) -> None:
    one = {"source": str(volume), "target": "/volumes/ckpt", "read_only": True}

    assert resumes(volume, volumes=[one | {"checkpoints": True}]) == "0"

    assert list(volume.iterdir()) == []


def test_what_somebody_else_has_put_there_is_not_resumed_from(volume: Path) -> None:
    (volume / "t1").mkdir(mode=0o777)
    (volume / "t1" / "state").touch()
    os.chown(volume / "t1", 4711, 4711)

    assert resumes(volume) == "0"

    assert (volume / "t1").stat().st_uid == 4711
    assert [one.name for one in volume.iterdir()] == ["t1"]


def test_on_a_share_that_gives_all_files_to_one_account_the_task_resumes(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `all_squash`: root can give nothing away there, and the task made its folder."""

    def squashed(*_anything: object) -> None:
        raise PermissionError

    (volume / "t1").mkdir()
    (volume / "t1" / "state").touch()
    os.chown(volume / "t1", 4711, 4711)
    monkeypatch.setattr(task_files, "give", squashed)

    assert resumes(volume) == "1"

    assert [one.name for one in volume.iterdir()] == ["t1"]


def exchanging(monkeypatch: pytest.MonkeyPatch, victim: Path) -> None:
    """What is made has the place of the victim at once, and the victim its name."""
    real = os.mkdir

    def mkdir(name: str, mode: int = 0o777, *, dir_fd: int) -> None:
        real(name, mode, dir_fd=dir_fd)
        os.rename(name, "elsewhere", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.rename(victim.name, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o777])
@pytest.mark.parametrize(
    ("owner", "files"), [(4711, ()), (4711, ("state",)), (0, ("state",)), (NOBODY, ("state",))]
)
def test_a_folder_that_takes_the_place_of_the_new_one_is_not_given_to_the_task(
    volume: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, files: tuple[str, ...]
) -> None:
    volume.chmod(mode)
    victim = volume / "t2"
    victim.mkdir(mode=0o700)
    for name in files:
        (victim / name).touch()
    os.chown(victim, owner, owner)
    exchanging(monkeypatch, victim)

    with suppress(FileNotFoundError):
        launched(volume)

    # An empty one may be gone.
    if files or (volume / "t1").exists():
        assert (volume / "t1").stat().st_uid == owner
        assert {one.name for one in (volume / "t1").iterdir()} == set(files)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_where_others_may_rename_the_folder_is_made_with_the_rights_of_the_task(
    volume: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    def refused(*_anything: object) -> None:
        raise AssertionError("nothing is given away there")

    volume.chmod(mode)
    monkeypatch.setattr(os, "fchown", refused)

    assert resumes(volume) == "0"

    made = [(one.name, one.stat().st_uid, one.stat().st_mode & 0o777) for one in volume.iterdir()]
    assert made == ([("t1", NOBODY, 0o700)] if mode == 0o777 else [])


def test_a_folder_that_takes_the_place_of_a_trial_keeps_what_is_in_it(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume.chmod(0o777)
    (volume / "t1").mkdir()
    os.chown(volume / "t1", 4711, 4711)
    victim = volume / "t2"
    victim.mkdir(mode=0o700)
    (victim / "state").touch()
    os.chown(victim, 4712, 4712)
    exchanging(monkeypatch, victim)

    launched(volume)

    (trial,) = volume.glob("t1.rpm-*")
    assert trial.stat().st_uid == 4712
    assert (trial / "state").exists()
