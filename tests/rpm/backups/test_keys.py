"""Which keys a backup was made with, and whether they are at hand when it is restored."""

from pathlib import Path
from typing import Any

import pytest

from apps.core import keyring
from apps.nodes.models import Node
from rpm.backups.archive import part_of, read_archive, write_archive
from rpm.backups.keys import StagedKeys, changed_variables, collect
from rpm.backups.manifest import KEY_RING, Manifest, describe
from rpm.env import InstallationFolder

pytestmark = pytest.mark.django_db


def ring(settings: Any, monkeypatch: pytest.MonkeyPatch, *keys: str) -> Manifest:
    """A manifest of now, with these keys in the variable."""
    settings.RPM_SECRET_KEYS = list(keys)
    monkeypatch.setenv("RPM_SECRET_KEYS", ",".join(keys))
    return describe([], elsewhere=[])


def test_a_backup_names_the_keys_that_seal_and_reveals_none(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = keyring.new_key(), keyring.new_key()

    fingerprints = ring(settings, monkeypatch, first, second).fingerprints[KEY_RING]

    assert len(set(fingerprints.split())) == 2
    assert first not in fingerprints
    assert second not in fingerprints


def test_a_ring_without_a_key_of_the_backup_is_named(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, other = (keyring.new_key() for _ in range(3))
    made = ring(settings, monkeypatch, first, second)

    ring(settings, monkeypatch, other, second, first)
    assert changed_variables(made) == []
    ring(settings, monkeypatch, other, second)
    assert changed_variables(made) == ["RPM_SECRET_KEYS"]


def test_what_a_backup_takes_is_restored_and_the_rest_is_named(
    tmp_path: Path, settings: Any
) -> None:
    """By one rule: a backup is not made of keys for which a restore would refuse it."""
    taken = {
        *("gpu01", "node-keys/gpu01", "keys/gpu01", ".keys/gpu01", ".ssh/id_ed25519", ".ssh/gpu"),
        *("backups/gpu01", "redis.gpu01", "beat/gpu01", "node-h200/gpu01", "up.lock-gpu01"),
    }
    left = {
        *("static/gpu01", "node-h100/gpu01", "n/helper/gpu01", "rpm.sqlite3", "n/a.sqlite3-wal"),
        *("redis.sock", "up.lock", "beat-schedule.db", "seals-bound", "demonstration-logins.json"),
        *("backups/before-1-20260501T030000Z.rpm", ".profile", "keys/.gpu01", ".config/gpu01"),
        *(".ssh/authorized_keys", ".ssh/rc", "linked/gpu01", "../outside", "public"),
    }
    home, folder, unpacked = (tmp_path / name for name in ("home", "folder", "unpacked"))
    for made in (home, folder, unpacked, tmp_path / "away"):
        made.mkdir()
    (home / "linked").symlink_to(tmp_path / "away")
    settings.HOME = InstallationFolder(home)
    for number, name in enumerate((*taken, *left, "./gpu01", "not-there")):
        if name != "not-there":
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text("a key" if name == "public" else f"PRIVATE KEY {name}")
        Node.objects.create(name=f"n{number}", key_path=f"{home}/{name}")

    names, elsewhere = collect(folder)
    manifest = describe([part_of(folder, name) for name in names], elsewhere=elsewhere)
    write_archive(tmp_path / "file", folder, manifest, passphrase="")
    read = read_archive(tmp_path / "file", unpacked, passphrase="")
    settings.HOME = InstallationFolder(tmp_path / "restored")
    settings.HOME.path.mkdir()
    StagedKeys(unpacked, read).put()

    restored = settings.HOME.path
    found = {str(one.relative_to(restored)) for one in restored.rglob("*") if one.is_file()}
    assert found == taken
    assert all((restored / name).read_bytes() == (home / name).read_bytes() for name in taken)
    assert set(read.elsewhere) == {f"{home}/{name}" for name in (*left, "not-there")}
