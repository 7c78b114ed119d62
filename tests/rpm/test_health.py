"""What probes and `manage.py doctor` say when something is away."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import User
from apps.core import clock
from apps.execution.services.preflight import preflight_note
from apps.nodes.models import Installation
from apps.nodes.services import restore_confirm
from apps.usage.models import UsageRun
from apps.usage.services.runs import usage_run
from rpm.health import check_nodes, check_pass, check_usage
from tests.allocation.state import make_node, make_server
from tests.people import Example
from tests.services import ports

ROOT = Path(__file__).resolve().parent.parent.parent
ASK = """
import django
django.setup()
from django.test import Client
answer = Client().get("/readyz", headers={"Host": "localhost"})
print(answer.status_code, answer.content.decode())
"""


def run(home: Path, *arguments: str, database_url: str) -> subprocess.CompletedProcess[str]:
    """Python in a folder of its own."""
    environment = os.environ | {
        "RPM_HOME": str(home),
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "rpm.settings",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )


def test_readiness_without_a_database_is_503_and_names_no_server(tmp_path: Path) -> None:
    nobody = f"postgresql://someone:hidden@127.0.0.1:{ports.free_port()}/books"

    asked = run(tmp_path, "-c", ASK, database_url=nobody)

    status, _, body = asked.stdout.partition(" ")
    assert status == "503", asked.stderr
    assert json.loads(body) == {"ready": False}


def test_the_doctor_says_that_tables_are_missing(tmp_path: Path) -> None:
    asked = run(tmp_path, "manage.py", "doctor", database_url=f"sqlite:///{tmp_path}/new.sqlite3")

    assert asked.returncode == 1
    assert "the database reports an error" in asked.stdout
    assert "Run manage.py migrate." in asked.stdout
    assert "Traceback" not in asked.stderr


@pytest.mark.django_db
def test_after_a_restore_nobody_blames_the_worker() -> None:
    Installation.objects.filter(id=1).update(restored_at=timezone.now())

    suspended = check_pass()
    restore_confirm(actor=None)
    confirmed = check_pass()

    assert not suspended.is_fine
    assert suspended.words.startswith("Suspended until confirmed: ")
    assert "rpmctl confirm-restored" in suspended.fix
    assert "worker" not in suspended.words + suspended.fix
    assert confirmed.words.startswith("Confirmed after a restore.")


def test_an_installation_without_a_pass_is_not_ready(client: Client, root: User) -> None:
    client.force_login(root)

    answer = client.get("/readyz")

    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer.json()["checks"]["pass"] == "no pass was ever made"


def test_only_an_administrator_reads_what_is_not_ready(client: Client, alice: User) -> None:
    assert client.get("/readyz").json() == {"ready": False}

    client.force_login(alice)

    assert client.get("/readyz").json() == {"ready": False}


@pytest.mark.django_db
def test_the_doctor_says_that_no_process_serves_the_nodes(example: Example) -> None:
    make_node(example.bare_metal, name="b1")

    finding = check_nodes()

    assert not finding.is_fine
    assert finding.words == "no process serves the nodes"
    assert "manage.py serve_nodes" in finding.fix


@pytest.mark.django_db
def test_the_doctor_names_a_node_that_starts_no_task_and_why(example: Example) -> None:
    node = make_node(example.bare_metal, name="b1")
    make_server()
    assert check_nodes().is_fine
    for _ in range(3):
        preflight_note(node.pk, 'default OCI runtime "nope" not found')

    finding = check_nodes()

    assert not finding.is_fine
    assert 'b1 cannot start tasks, and is drained until it can: default OCI runtime "nope"' in (
        finding.words
    )
    assert "node check" in finding.fix


@pytest.mark.django_db
def test_the_doctor_says_since_when_usage_was_not_seen_to() -> None:
    usage_run()
    assert check_usage().is_fine

    UsageRun.objects.update(at=clock.now() - timedelta(minutes=11))

    finding = check_usage()
    assert not finding.is_fine
    assert "last seen to 660 s ago" in finding.words
    assert "beat" in finding.fix


@pytest.mark.django_db
def test_a_clock_in_doubt_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    UsageRun.objects.all().delete()
    monkeypatch.setattr(clock, "is_in_doubt", lambda: True)

    usage_run()

    assert not UsageRun.objects.exists()
