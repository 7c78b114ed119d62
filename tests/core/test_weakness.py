"""Keys that could be guessed stop the start; random ones never do."""

import base64
import secrets
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from apps.core import keyring
from apps.core.weakness import key_weakness, secret_weakness
from rpm.env import BadEnvironment, InstallationFolder


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param("short", id="short"),
        pytest.param("x" * 64, id="one sign"),
        pytest.param("ab" * 32, id="two signs"),
        pytest.param("Tr0ub4dor&3" * 4, id="the same again and again"),
        pytest.param("0123456789abcdef0123456789abcdef", id="a sequence"),
        pytest.param("django-insecure-k2j3h4k5j6h7k8j9h0q1w2e3r4t5y6", id="of a template"),
        pytest.param("please-changeme-k2j3h4k5j6h7k8j9h0q1w2e3r4", id="of an example"),
        pytest.param("".join(chr(33 + number) for number in range(64)), id="in order"),
    ],
)
def test_secrets_that_are_easy_to_guess_are_reported(
    secret: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RPM_TEST_SECRET", secret)

    with pytest.raises(BadEnvironment) as refused:
        InstallationFolder(tmp_path).secret("test-secret", "RPM_TEST_SECRET")

    assert "RPM_TEST_SECRET" in str(refused.value)
    assert secret == "short" or secret not in str(refused.value)


def test_a_weak_secret_in_the_file_is_reported_too(tmp_path: Path) -> None:
    (tmp_path / "test-secret").write_text("changeme" * 8)

    with pytest.raises(BadEnvironment, match="test-secret holds no usable secret"):
        InstallationFolder(tmp_path).secret("test-secret", "RPM_TEST_SECRET")


def test_random_secrets_and_keys_are_never_refused() -> None:
    for _ in range(2000):
        assert secret_weakness(secrets.token_urlsafe(48)) == ""
        assert secret_weakness(secrets.token_hex(16)) == ""
        assert key_weakness(Fernet.generate_key().decode()) == ""


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(bytes(32), id="zeros"),
        pytest.param(bytes(range(32)), id="in order"),
        pytest.param(b"this-is-a-passphrase-not-a-key!!", id="words"),
        pytest.param(b"\x8f\x01" * 16, id="the same again and again"),
        pytest.param(secrets.token_bytes(16), id="half as long"),
    ],
)
def test_keys_of_the_ring_that_somebody_could_guess_stop_it(raw: bytes, settings: Any) -> None:
    settings.RPM_SECRET_KEYS = [keyring.new_key(), base64.urlsafe_b64encode(raw).decode()]

    with pytest.raises(ValueError, match="key 2 of 2"):
        keyring.keys()
