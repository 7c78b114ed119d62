"""What probes and `manage.py doctor` say when something is away."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import User
from apps.execution.services.preflight import preflight_note
from apps.nodes.models import Installation
from apps.nodes.services import restore_confirm
from rpm.health import check_nodes, check_pass
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
