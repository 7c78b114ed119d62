"""The file of a backup: whole and unchanged, or refused."""

import io
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import json, structs

from rpm.backups.archive import part_of, read_archive, write_archive
from rpm.backups.errors import BackupFailed
from rpm.backups.keys import StagedKeys
from rpm.backups.manifest import FORMAT, KEY_FILES, BackupPart, Manifest, read_manifest
from rpm.env import InstallationFolder

CONTENT = bytes(range(256)) * 8192
PRIVATE_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    folder = tmp_path / "filled"
    (folder / "home").mkdir(parents=True)
    (folder / "database.dump").write_bytes(CONTENT)
    (folder / "home" / "secret-key").write_text("a key")
    return folder


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def manifest_of(folder: Path) -> Manifest:
    parts = [part_of(folder, "database.dump"), part_of(folder, "home/secret-key")]
    return structs.replace(manifest_of_nothing(), parts=parts)


def manifest_of_nothing() -> Manifest:
    return Manifest(
        format=FORMAT,
        version="1.2.3",
        made_at=datetime(2026, 1, 2, tzinfo=UTC),
        installation="abcd",
        home="/srv/rpm",
        database="postgresql",
        server_version=170000,
        migrations={"tasks": ["0001_initial"]},
        fingerprints={},
        elsewhere=[],
        parts=[],
    )


@pytest.mark.parametrize("passphrase", ["", "a long passphrase"])
def test_what_was_written_is_read_again(filled: Path, empty: Path, passphrase: str) -> None:
    target = filled.parent / "file"

    write_archive(target, filled, manifest_of(filled), passphrase=passphrase)

    assert target.stat().st_mode & 0o777 == 0o600
    assert (b"a key" in target.read_bytes()) is not bool(passphrase)
    assert read_archive(target, empty, passphrase=passphrase) == manifest_of(filled)
    assert (empty / "database.dump").read_bytes() == CONTENT
    assert (empty / "home" / "secret-key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in target.parent.iterdir() if path.name.endswith(".tmp")] == []


def test_a_sealed_file_says_that_it_needs_a_passphrase(filled: Path, empty: Path) -> None:
    target = filled.parent / "file"
    write_archive(target, filled, manifest_of(filled), passphrase="a long passphrase")

    with pytest.raises(BackupFailed, match="sealed"):
        read_archive(target, empty, passphrase="")


@pytest.mark.parametrize(
    "name",
    [
        "home//etc/cron.d/x",
        "home/../../x",
        "home/a/../../../x",
        "home/./x",
        "home/",
        "home/..",
        "home",
        "/etc/cron.d/x",
        "other/x",
        "x",
        "",
        "home/static/dist/app.js",
        "home/node-h100/helper",
        "home/rpm.sqlite3",
        "home/rpm.sqlite3-wal",
        "home/.ssh/authorized_keys",
        "home/.profile",
        "home/keys/.x",
        "home/beat-schedule",
        "home/beat-schedule.db",
        "home/redis.sock",
        "home/up.lock",
        "home/seals-bound",
        "home/demonstration-logins.json",
        "home/backups/before-1-20260501T030000Z.rpm",
        "home/elsewhere/helper/__main__.py",
        "home/elsewhere/config.json",
        "home/node-h200/tasks/1/1-0/spec.json",
        "home/elsewhere/helper-0123456789abcdef/__main__.py",
        "home/.ssh/rc",
        "home/.config/x",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_written(
    filled: Path, empty: Path, name: str
) -> None:
    target = filled.parent / "file"
    manifest = manifest_of(filled)
    crafted = structs.replace(manifest, parts=[structs.replace(manifest.parts[0], name=name)])
    with tarfile.open(target, "w") as archive:
        for entry_name, content in (("manifest.json", json.encode(crafted)), (name, CONTENT)):
            entry = tarfile.TarInfo(entry_name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))

    with pytest.raises(BackupFailed, match="names a file"):
        read_archive(target, empty, passphrase="")

    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("name", [*KEY_FILES, "gpu01", "keys/gpu01", "node-key", ".ssh/id_ed25519"])
def test_names_of_keys_are_taken(filled: Path, name: str) -> None:
    manifest = manifest_of(filled)
    parts = [structs.replace(manifest.parts[0], name=f"home/{name}")]

    read_manifest(json.encode(structs.replace(manifest, parts=parts)))


def test_what_holds_no_key_is_put_nowhere(tmp_path: Path, settings: Any) -> None:
    home, unpacked = tmp_path / "rpm", tmp_path / "unpacked"
    (unpacked / "home").mkdir(parents=True)
    home.mkdir()
    settings.HOME = InstallationFolder(home)
    for name, content in (("gpu01", "print()"), ("gpu02", PRIVATE_KEY)):
        (unpacked / "home" / name).write_text(content)

    with pytest.raises(BackupFailed, match="is no key"):
        StagedKeys(
            unpacked,
            structs.replace(manifest_of_nothing(), parts=[BackupPart("home/gpu01", 7, "")]),
        )
    kept = structs.replace(manifest_of_nothing(), parts=[BackupPart("home/gpu02", 7, "")])
    StagedKeys(unpacked, kept).put()

    assert [one.name for one in home.iterdir()] == ["gpu02"]


def test_no_key_is_put_where_a_name_leads_out_of_the_folder(tmp_path: Path, settings: Any) -> None:
    home, unpacked = tmp_path / "rpm", tmp_path / "unpacked"
    for folder in (home, unpacked / "home" / "keys"):
        folder.mkdir(parents=True)
    (unpacked / "home" / "keys" / "x").write_text("a key")
    (home / "keys").symlink_to(tmp_path)
    settings.HOME = InstallationFolder(home)
    for name in ("home//etc/x", f"home/{tmp_path}/x", "home/../x", "home/keys/x"):
        parts = [BackupPart(name, 5, "")]

        with pytest.raises(BackupFailed, match="outside of itself"):
            StagedKeys(unpacked, structs.replace(manifest_of_nothing(), parts=parts))

    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kept", [0, 100, 600, 5_000, 1_000_000])
def test_a_cut_file_is_refused(filled: Path, empty: Path, kept: int) -> None:
    target = filled.parent / "file"
    write_archive(target, filled, manifest_of(filled), passphrase="")
    target.write_bytes(target.read_bytes()[:kept])

    with pytest.raises(BackupFailed):
        read_archive(target, empty, passphrase="")


@pytest.mark.parametrize("cut", [1, 512, 1_024, 10_240, 20_480])
def test_a_file_cut_by_its_last_bytes_is_refused(filled: Path, empty: Path, cut: int) -> None:
    target = filled.parent / "file"
    write_archive(target, filled, manifest_of(filled), passphrase="")
    target.write_bytes(target.read_bytes()[:-cut])

    with pytest.raises(BackupFailed):
        read_archive(target, empty, passphrase="")


def test_a_changed_part_is_refused(filled: Path, empty: Path) -> None:
    target = filled.parent / "file"
    write_archive(target, filled, manifest_of(filled), passphrase="")
    content = target.read_bytes()
    target.write_bytes(content.replace(CONTENT[:600], b"x" * 600, 1))

    with pytest.raises(BackupFailed, match=r"checksum of database\.dump"):
        read_archive(target, empty, passphrase="")


def test_a_file_of_another_format_is_refused(filled: Path, empty: Path) -> None:
    target = filled.parent / "file"
    later = structs.replace(manifest_of(filled), format=FORMAT + 1)
    write_archive(target, filled, later, passphrase="")

    with pytest.raises(BackupFailed, match=f"format {FORMAT + 1}"):
        read_archive(target, empty, passphrase="")


def test_a_part_cannot_be_written_outside_of_the_folder(filled: Path, empty: Path) -> None:
    target = filled.parent / "file"
    (filled.parent / "outside").write_text("as it was")
    part = structs.replace(part_of(filled, "home/secret-key"), name="../outside")
    manifest = structs.replace(manifest_of(filled), parts=[part])
    (filled / "manifest.json").write_bytes(json.encode(manifest))
    with tarfile.open(target, "w") as archive:
        archive.add(filled / "manifest.json", "manifest.json")
        archive.add(filled / "home" / "secret-key", "../outside")

    with pytest.raises(BackupFailed, match="outside"):
        read_archive(target, empty, passphrase="")

    assert (filled.parent / "outside").read_text() == "as it was"


def test_any_other_file_is_refused(empty: Path) -> None:
    other = empty.parent / "other"
    other.write_bytes(b"hello\n" * 5000)

    with pytest.raises(BackupFailed, match="no backup"):
        read_archive(other, empty, passphrase="")


def test_a_file_that_cannot_be_written_leaves_nothing(filled: Path) -> None:
    target = filled.parent / "folder"
    target.mkdir()
    (target / "something").touch()

    with pytest.raises(BackupFailed, match="cannot be written"):
        write_archive(target, filled, manifest_of(filled), passphrase="")

    assert sorted(path.name for path in filled.parent.iterdir()) == ["filled", "folder"]
