"""A mail server that is only half described stops the start."""

import pytest

from rpm import env

GOOD = {"RPM_SMTP_HOST": "mail.example.org", "RPM_SMTP_FROM": "rpm@example.org"}


def smtp(monkeypatch: pytest.MonkeyPatch, **variables: str) -> env.Smtp:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return env.smtp()


def test_without_a_host_there_is_no_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert smtp(monkeypatch).host == ""


@pytest.mark.parametrize(("security", "port"), [("starttls", 587), ("tls", 465), ("none", 25)])
def test_the_port_follows_from_the_security(
    monkeypatch: pytest.MonkeyPatch, security: str, port: int
) -> None:
    assert smtp(monkeypatch, **GOOD, RPM_SMTP_SECURITY=security).port == port


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({"RPM_SMTP_FROM": ""}, "RPM_SMTP_FROM", id="no sender"),
        pytest.param({"RPM_SMTP_SECURITY": "ssl"}, "RPM_SMTP_SECURITY", id="no such security"),
        pytest.param({"RPM_SMTP_PORT": "0"}, "RPM_SMTP_PORT", id="no such port"),
        pytest.param({"RPM_SMTP_USER": "rpm"}, "RPM_SMTP_PASSWORD", id="no password"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], named: str
) -> None:
    with pytest.raises(env.BadEnvironment, match=named):
        smtp(monkeypatch, **GOOD | changes)


def test_the_password_comes_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("secrets") / "smtp"
    path.write_text("right\n")

    found = smtp(monkeypatch, **GOOD, RPM_SMTP_USER="rpm", RPM_SMTP_PASSWORD_FILE=str(path))

    assert found.password == "right"
