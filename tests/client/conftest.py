"""`rpmctl` for alice, against a real server."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from pytest_django.live_server_helper import LiveServer
from typer.main import get_command
from typer.testing import CliRunner, Result

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people import built_in_groups_ensure
from rpm_client import Client
from rpm_client.cli.app import app


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of configuration of its own; nothing of the machine counts."""
    folder = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    for name in ("RPM_URL", "RPM_KEY", "RPM_SECRET", "RPM_TOKEN", "RPM_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture(autouse=True, scope="session")
def commands_made_once() -> Iterator[None]:
    """As in one run of `rpmctl`; most calls take less time than making all commands again."""
    with mock.patch("typer.testing._get_command", cache(get_command)):
        yield


@pytest.fixture
def access(transactional_db: None, live_server: LiveServer, alice: User) -> dict[str, str]:
    # Emptying the tables after a test takes the built-in groups along.
    built_in_groups_ensure()
    credential, secret = credential_create(user=alice, label="test")
    return {"RPM_URL": live_server.url, "RPM_KEY": credential.key, "RPM_SECRET": secret}


@pytest.fixture
def administration(access: dict[str, str], root: User) -> dict[str, str]:
    """As `access`, for root."""
    credential, secret = credential_create(user=root, label="test")
    return {**access, "RPM_KEY": credential.key, "RPM_SECRET": secret}


@pytest.fixture
def client(access: dict[str, str]) -> Iterator[Client]:
    with Client(access["RPM_URL"], key=access["RPM_KEY"], secret=access["RPM_SECRET"]) as client:
        yield client


def ctl(access: dict[str, str], *words: str, given: str = "") -> Result:
    """Run a command with this environment and input."""
    return CliRunner().invoke(app, list(words), env=access, input=given)
