"""`manage.py serve_nodes`: serves nodes for as long as it runs, and lets go of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from apps.execution.node_server.claims import CLAIM_FOR
from apps.execution.node_server.identity import process_token
from apps.nodes.models import ServingProcess
from tests.services import ports

ROOT = Path(__file__).resolve().parents[3]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "manage.py", "serve_nodes", *arguments]


@pytest.fixture
def installation(database_url: str, tmp_path: Path) -> dict[str, str]:
    """Its variables; the database is migrated."""
    environment = os.environ | {"DATABASE_URL": database_url, "RPM_HOME": str(tmp_path / "home")}
    migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, cwd=ROOT, env=environment, check=True)
    return environment


@pytest.fixture
def server(installation: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command(), cwd=ROOT, env=installation)
    yield process
    ports.stop(process, signal=signal.SIGTERM, timeout_s=60)


def check(installation: dict[str, str]) -> int:
    """The status of `serve_nodes --check`."""
    done = subprocess.run(
        command("--check"), cwd=ROOT, env=installation, check=False, capture_output=True
    )
    return done.returncode


def test_the_check_says_whether_a_process_serves_nodes_here(
    installation: dict[str, str], server: subprocess.Popen[bytes]
) -> None:
    ports.wait_until(lambda: check(installation) == 0, what="a serving process", timeout_s=60)

    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0

    assert check(installation) == 1


@pytest.mark.django_db
def test_a_process_of_another_machine_is_not_one_of_this() -> None:
    ServingProcess.objects.create(token="other.1.1.abcdef", alive_until=Now() + CLAIM_FOR)

    with pytest.raises(CommandError, match="No process on this machine"):
        call_command("serve_nodes", "--check")

    ServingProcess.objects.create(token=process_token(), alive_until=Now() + CLAIM_FOR)
    call_command("serve_nodes", "--check")
