"""Sealing at rest: keys from a file or a variable, and their rotation."""

import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import assume, given
from hypothesis import strategies as st

from apps.core import keyring
from apps.core.keyring import CannotUnseal, SealContext, SealMismatch
from apps.core.resealer import Resealer

HERE = SealContext("tasks.task.secrets", ("1", 2), "KEY")


@pytest.fixture
def ring(tmp_path: Path, settings: Any) -> Path:
    """The file of an installation that was never started."""
    settings.RPM_SECRET_KEYS = []
    settings.RPM_KEY_RING_FILE = tmp_path / "key-ring"
    return tmp_path / "key-ring"


def test_the_file_is_made_once_for_its_owner_alone(ring: Path) -> None:
    sealed = keyring.seal("geheim", context=HERE)
    made = ring.read_text()

    assert keyring.unseal(sealed, context=HERE) == "geheim"
    assert "geheim" not in sealed
    assert ring.read_text() == made
    assert stat.S_IMODE(ring.stat().st_mode) == 0o600
    assert list(ring.parent.iterdir()) == [ring]


def test_the_same_text_is_sealed_differently_each_time(ring: Path) -> None:
    assert keyring.seal("x", context=HERE) != keyring.seal("x", context=HERE)


def test_a_new_first_key_seals_and_the_old_one_still_opens(ring: Path) -> None:
    before = keyring.seal("x", context=HERE)
    (old,) = keyring.keys()
    new = keyring.new_key()

    keyring.write_keys((new, old))

    assert keyring.unseal(before, context=HERE) == "x"
    assert keyring.opens(new, keyring.reseal(before, context=HERE))
    assert not keyring.opens(old, keyring.reseal(before, context=HERE))
    assert stat.S_IMODE(ring.stat().st_mode) == 0o600


def test_a_value_that_a_lost_key_sealed_has_an_error_of_its_own(ring: Path) -> None:
    before = keyring.seal("x", context=HERE)
    keyring.write_keys((keyring.new_key(),))

    with pytest.raises(keyring.KeyMissing):
        keyring.unseal(before, context=HERE)
    with pytest.raises(keyring.KeyMissing):
        keyring.reseal(before, context=HERE)


@pytest.mark.parametrize(
    "elsewhere",
    [
        SealContext("vaults.version.text", ("1", 2), "KEY"),
        SealContext("tasks.task.secrets", ("2", 2), "KEY"),
        SealContext("tasks.task.secrets", ("1", 3), "KEY"),
        SealContext("tasks.task.secrets", ("1", 2), "OTHER"),
        SealContext("tasks.task.secrets", ("1",), "2KEY"),
        SealContext("tasks.task.secrets", ("1", "2", "KEY")),
    ],
)
def test_a_value_opens_in_its_place_only(ring: Path, elsewhere: SealContext) -> None:
    sealed = keyring.seal("geheim", context=HERE)

    with pytest.raises(SealMismatch) as refused:
        keyring.unseal(sealed, context=elsewhere)
    with pytest.raises(SealMismatch):
        keyring.reseal(sealed, context=elsewhere, to=HERE)

    assert str(elsewhere) in refused.value.detail
    assert "geheim" not in f"{refused.value.detail} {refused.value.fields}"
    moved = keyring.reseal(sealed, context=HERE, to=elsewhere)
    assert keyring.unseal(moved, context=elsewhere) == "geheim"


def test_a_refusal_names_the_field(ring: Path) -> None:
    sealed = keyring.seal("x", context=SealContext("vaults.version.text", ("1",)))

    with pytest.raises(SealMismatch) as refused:
        keyring.unseal(sealed, context=HERE)

    assert list(refused.value.fields) == ["secrets.KEY"]


@pytest.mark.parametrize("changed", ["", "x", "rpm2.", "rpm2.\ud800", "rpm2.AAAA", 5, None, {}])
def test_what_was_never_sealed_is_refused(ring: Path, changed: Any) -> None:
    with pytest.raises(SealMismatch):
        keyring.unseal(changed, context=HERE)


@given(at=st.integers(0, 200), to=st.integers(0, 255))
def test_a_changed_byte_is_found(at: int, to: int) -> None:
    sealed = keyring.seal("geheim", context=HERE)
    raw = bytearray(urlsafe_b64decode(sealed.removeprefix("rpm2.")))
    at %= len(raw)
    assume(raw[at] != to)
    raw[at] = to

    with pytest.raises(CannotUnseal):
        keyring.unseal("rpm2." + urlsafe_b64encode(raw).decode(), context=HERE)


def test_the_form_of_an_earlier_version_opens_nowhere(ring: Path) -> None:
    earlier = Fernet(keyring.keys()[0]).encrypt(b"geheim").decode()

    with pytest.raises(SealMismatch, match="earlier version"):
        keyring.unseal(earlier, context=HERE)
    with pytest.raises(SealMismatch, match="earlier version"):
        keyring.reseal(earlier, context=HERE)


def test_binding_takes_over_the_form_of_an_earlier_version_alone(ring: Path) -> None:
    earlier = Fernet(keyring.keys()[0]).encrypt(b"geheim").decode()
    unknown = Fernet(Fernet.generate_key()).encrypt(b"geheim").decode()
    bound = keyring.seal("x", context=HERE)
    resealer = Resealer(binds=True)

    assert keyring.unseal(resealer.value(earlier, HERE), context=HERE) == "geheim"
    assert [resealer.value(one, HERE) for one in (unknown, bound, "")] == [unknown, bound, ""]
    assert resealer.changed == 1
    assert ["not in the key ring" in problem for problem in resealer.problems] == [True]


def test_what_cannot_be_read_stays_and_is_named(ring: Path) -> None:
    moved = keyring.seal("x", context=SealContext("tasks.task.secrets", ("2", 2), "KEY"))
    resealer = Resealer()

    assert resealer.value(moved, HERE) == moved
    assert (
        keyring.unseal(resealer.value(keyring.seal("y", context=HERE), HERE), context=HERE) == "y"
    )
    (problem,) = resealer.problems
    assert problem.startswith("1/2: tasks.task.secrets KEY cannot be read")


def test_keys_are_derived_once_and_for_each_purpose(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived: list[str] = []
    derive = keyring._derive

    def noting(key: str, info: str, length: int) -> bytes:
        derived.append(info)
        return derive(key, info, length)

    monkeypatch.setattr(keyring, "_derive", noting)
    for name in ("A", "B", "C"):
        context = SealContext("tasks.task.secrets", ("1", 2), name)
        keyring.unseal(keyring.seal("x", context=context), context=context)
    keyring.seal("x", context=SealContext("vaults.version.text"))

    assert sorted(derived) == [
        "rpm seal key id",
        "rpm seal tasks.task.secrets",
        "rpm seal vaults.version.text",
    ]


def test_keys_of_a_variable_go_before_the_file(ring: Path, settings: Any) -> None:
    settings.RPM_SECRET_KEYS = [Fernet.generate_key().decode()]

    assert keyring.unseal(keyring.seal("x", context=HERE), context=HERE) == "x"
    assert not ring.exists()
    with pytest.raises(ValueError, match="RPM_SECRET_KEYS"):
        keyring.write_keys((keyring.new_key(),))


def test_a_text_that_is_no_key_is_refused(ring: Path) -> None:
    ring.write_text("not a key\n")

    with pytest.raises(ValueError, match="32"):
        keyring.keys()
