"""Sealing at rest: keys from a file or a variable, and their rotation."""

import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from apps.core import keyring


@pytest.fixture
def ring(tmp_path: Path, settings: Any) -> Path:
    """The file of an installation that was never started."""
    settings.RPM_SECRET_KEYS = []
    settings.RPM_KEY_RING_FILE = tmp_path / "key-ring"
    return tmp_path / "key-ring"


def test_the_file_is_made_once_for_its_owner_alone(ring: Path) -> None:
    sealed = keyring.seal("geheim")
    made = ring.read_text()

    assert keyring.unseal(sealed) == "geheim"
    assert "geheim" not in sealed
    assert ring.read_text() == made
    assert stat.S_IMODE(ring.stat().st_mode) == 0o600
    assert list(ring.parent.iterdir()) == [ring]


def test_the_same_text_is_sealed_differently_each_time(ring: Path) -> None:
    assert keyring.seal("x") != keyring.seal("x")


def test_a_new_first_key_seals_and_the_old_one_still_opens(ring: Path) -> None:
    before = keyring.seal("x")
    (old,) = keyring.keys()
    new = keyring.new_key()

    keyring.write_keys((new, old))

    assert keyring.unseal(before) == "x"
    assert keyring.opens(new, keyring.reseal(before))
    assert not keyring.opens(old, keyring.reseal(before))
    assert stat.S_IMODE(ring.stat().st_mode) == 0o600


def test_what_a_lost_key_sealed_is_told_apart(ring: Path) -> None:
    before = keyring.seal("x")
    keyring.write_keys((keyring.new_key(),))

    with pytest.raises(keyring.KeyMissing):
        keyring.unseal(before)
    with pytest.raises(keyring.KeyMissing):
        keyring.reseal(before)


def test_keys_of_a_variable_go_before_the_file(ring: Path, settings: Any) -> None:
    settings.RPM_SECRET_KEYS = [Fernet.generate_key().decode()]

    assert keyring.unseal(keyring.seal("x")) == "x"
    assert not ring.exists()
    with pytest.raises(ValueError, match="RPM_SECRET_KEYS"):
        keyring.write_keys((keyring.new_key(),))


def test_a_text_that_is_no_key_is_refused(ring: Path) -> None:
    ring.write_text("not a key\n")

    with pytest.raises(ValueError, match="32"):
        keyring.keys()
