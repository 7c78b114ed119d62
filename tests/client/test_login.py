"""Logging in: what is kept, where it goes, and what comes first."""

import json
from pathlib import Path

import pytest

from apps.accounts.models import Credential
from rpm_client import RefusedError
from rpm_client.cli.profiles import config_path
from tests.client.conftest import ctl

pytestmark = pytest.mark.django_db(transaction=True)

# Errors are on one line, however long the path of the folder is.
WIDE = {"COLUMNS": "300"}


def log_in(access: dict[str, str], *words: str) -> str:
    answers = f"{access['RPM_KEY']}\n{access['RPM_SECRET']}\n"
    done = ctl({}, *words, "login", access["RPM_URL"], given=answers)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_login_is_kept_for_its_owner_and_commands_use_it(access: dict[str, str]) -> None:
    said = log_in(access)

    assert f"alice at {access['RPM_URL']}, kept as default in" in said
    assert access["RPM_SECRET"] not in said
    assert config_path().stat().st_mode & 0o777 == 0o600
    assert config_path().parent.stat().st_mode & 0o777 == 0o700
    assert ctl({}, "whoami").stdout.splitlines()[0] == f"alice at {access['RPM_URL']}"
    assert json.loads(ctl({}, "whoami", "--json").stdout)["username"] == "alice"


def test_a_wrong_secret_is_not_kept(access: dict[str, str]) -> None:
    done = ctl({}, "login", access["RPM_URL"], given=f"{access['RPM_KEY']}\nwrong\n")

    assert isinstance(done.exception, RefusedError)
    assert not config_path().exists()


def test_profiles_have_names_and_logging_out_removes_one(access: dict[str, str]) -> None:
    log_in(access)
    log_in(access, "--profile", "other")

    removed = ctl({}, "logout")
    nothing = ctl({}, "whoami")
    other = ctl({"RPM_PROFILE": "other"}, "whoami")
    unknown = ctl({}, "--profile", "third", "whoami")

    assert removed.stdout == "default is removed.\n"
    # A key that was removed here is valid on the server.
    assert Credential.objects.get().revoked_at is None
    assert (nothing.exit_code, other.exit_code, unknown.exit_code) == (2, 0, 2)
    assert "rpmctl login" in nothing.output
    assert "Known: other" in unknown.output


def test_the_environment_counts_over_a_profile(access: dict[str, str]) -> None:
    log_in(access)

    wrong = ctl({**access, "RPM_SECRET": "wrong"}, "whoami")

    assert isinstance(wrong.exception, RefusedError)


def test_a_stored_credential_goes_to_no_other_server(access: dict[str, str]) -> None:
    log_in(access)

    done = ctl({"RPM_URL": "http://127.0.0.1:1"}, "queues")
    named = ctl({"RPM_URL": "http://127.0.0.1:1"}, "--profile", "default", "queues")

    assert done.exit_code == named.exit_code == 2
    assert "Run rpmctl login" in done.output


def test_a_file_that_others_can_read_or_that_is_broken_is_refused(config: Path) -> None:
    path = config_path()
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    path.chmod(0o644)

    readable = ctl(WIDE, "whoami")
    path.chmod(0o600)
    path.write_text('{"default": 3}')
    broken = ctl(WIDE, "whoami")

    assert readable.exit_code == broken.exit_code == 2
    assert "chmod 600" in readable.output
    assert "run rpmctl" in broken.output


@pytest.mark.parametrize("address", ["http://rpm.example.org", "http://127.0.0.1.example.org"])
def test_a_secret_is_sent_unencrypted_to_this_machine_alone(address: str, config: Path) -> None:
    done = ctl(WIDE, "login", address, "--key", "k", given="secret\n")

    assert done.exit_code == 2
    assert "sends the secret without encryption" in done.output
    assert not config.exists()
