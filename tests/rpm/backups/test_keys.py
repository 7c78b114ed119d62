"""Which keys a backup was made with, and whether they are at hand when it is restored."""

from typing import Any

import pytest

from apps.core import keyring
from rpm.backups.keys import changed_variables
from rpm.backups.manifest import KEY_RING, Manifest, describe

pytestmark = pytest.mark.django_db


def ring(settings: Any, monkeypatch: pytest.MonkeyPatch, *keys: str) -> Manifest:
    """A manifest of now, with these keys in the variable."""
    settings.RPM_SECRET_KEYS = list(keys)
    monkeypatch.setenv("RPM_SECRET_KEYS", ",".join(keys))
    return describe([], elsewhere=[])


def test_a_backup_names_the_keys_that_seal_and_tells_none(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = keyring.new_key(), keyring.new_key()

    told = ring(settings, monkeypatch, first, second).fingerprints[KEY_RING]

    assert len(set(told.split())) == 2
    assert first not in told
    assert second not in told


def test_a_ring_without_a_key_of_the_backup_is_named(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, other = (keyring.new_key() for _ in range(3))
    made = ring(settings, monkeypatch, first, second)

    ring(settings, monkeypatch, other, second, first)
    assert changed_variables(made) == []
    ring(settings, monkeypatch, other, second)
    assert changed_variables(made) == ["RPM_SECRET_KEYS"]
