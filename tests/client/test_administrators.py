"""What an administrator does with `rpmctl`: the program itself, against a real server."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people import built_in_groups_ensure
from apps.events.models import Event
from apps.nodes.models import Installation, Node, NodeState
from tests.allocation.state import make_node
from tests.people import Example
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
Done = subprocess.CompletedProcess[str]


@pytest.fixture(autouse=True)
def _groups(transactional_db: None) -> None:
    # Emptying the tables after a test takes the built-in groups along.
    built_in_groups_ensure()


def rpmctl(server: LiveServer, person: User, *words: str) -> Done:
    """Run the program with a credential of this person."""
    credential, secret = credential_create(user=person, label="test")
    access = {"RPM_URL": server.url, "RPM_KEY": credential.key, "RPM_SECRET": secret}
    return subprocess.run(
        [sys.executable, "-m", "rpm_client", *words],
        cwd=ROOT,
        env={**os.environ, **access, "PYTHONPATH": str(ROOT / "client")},
        capture_output=True,
        text=True,
        timeout=scale_timeout(300),
        check=False,
    )


def test_a_silent_node_is_declared_off_with_a_reason_and_one_that_answers_is_not(
    live_server: LiveServer, root: User, charlie: User, example: Example
) -> None:
    make_node(example.h100, name="there")
    gone = make_node(example.h100, name="gone", state=NodeState.SUSPECT)

    why = ("--reason", "the rack lost power")
    done = rpmctl(live_server, root, "node", "off", "gone", *why)
    answers = rpmctl(live_server, root, "node", "off", "there", *why)
    silent = rpmctl(live_server, root, "node", "off", "gone")
    nowhere = rpmctl(live_server, root, "node", "off", "nothing", *why)
    refused = rpmctl(live_server, charlie, "node", "off", "gone", *why)

    assert (done.returncode, done.stdout) == (0, "switched off, suspect\n"), done.stderr
    gone.refresh_from_db()
    assert gone.off_at is not None
    event = Event.objects.get(kind="node.declared_off")
    assert (event.actor, event.data) == (root, {"name": "gone", "reason": "the rack lost power"})
    assert (answers.returncode, answers.stderr) == (
        1,
        "conflict: Node there answers: it is not switched off.\n",
    )
    assert silent.returncode == 1
    assert "reason" in silent.stderr
    assert (nowhere.returncode, nowhere.stderr) == (1, "not_found: There is no node 'nothing'.\n")
    assert refused.returncode == 1
    assert Node.objects.get(name="there").off_at is None


def test_a_node_is_paused_drained_and_resumed(
    live_server: LiveServer, root: User, example: Example
) -> None:
    node = make_node(example.h100, name="there")

    for words in (("pause", "there", "--reason", "a new fan"), ("drain", "there")):
        assert rpmctl(live_server, root, "node", *words).returncode == 0
    node.refresh_from_db()
    assert (node.is_paused, node.pause_reason, node.is_draining) == (True, "a new fan", True)
    listed = rpmctl(live_server, root, "node", "list").stdout
    assert listed.split("\t")[3] == "paused (a new fan), draining, healthy"

    assert rpmctl(live_server, root, "node", "resume", "there").returncode == 0
    node.refresh_from_db()
    assert (node.is_paused, node.pause_reason, node.is_draining) == (False, "", False)


def test_planned_work_is_announced_and_ended(
    live_server: LiveServer, root: User, charlie: User
) -> None:
    before = timezone.now()

    begun = rpmctl(live_server, root, "maintenance", "--hours", "1.5")
    until = Installation.objects.get(id=1).maintenance_until
    refused = rpmctl(live_server, charlie, "maintenance", "--hours", "9")
    both = rpmctl(live_server, root, "maintenance", "--hours", "1", "--end")
    ended = rpmctl(live_server, root, "maintenance", "--end")

    assert until is not None
    assert before + timedelta(hours=1.5) <= until <= timezone.now() + timedelta(hours=1.5)
    assert begun.stdout == f"Leases are granted until {until:%Y-%m-%d %H:%M} UTC.\n"
    assert (refused.returncode, refused.stdout) == (1, "")
    assert both.returncode == 2
    assert ended.stdout == "Leases are as usual.\n"
    assert Installation.objects.get(id=1).maintenance_until is None


def test_a_restored_database_is_confirmed_and_names_the_nodes_that_are_waited_for(
    live_server: LiveServer, root: User, charlie: User, example: Example
) -> None:
    make_node(example.h100, name="h1", unknown_work=1)
    early = rpmctl(live_server, root, "confirm-restored")
    Installation.objects.filter(id=1).update(restored_at=timezone.now())

    refused = rpmctl(live_server, charlie, "confirm-restored")
    assert Installation.objects.get(id=1).restore_confirmed_at is None
    done = rpmctl(live_server, root, "confirm-restored")

    assert (early.returncode, refused.returncode) == (1, 1)
    assert "there is nothing to confirm" in early.stderr
    assert done.stdout == "Passes go on once these nodes have answered: h1\n"
    assert Installation.objects.get(id=1).restore_confirmed_at is not None
    assert Event.objects.get(kind="installation.restore_confirmed").actor == root


def test_pools_are_listed_with_what_their_nodes_have(
    live_server: LiveServer, root: User, charlie: User, example: Example
) -> None:
    enforcement = {"memory": "mps", "compute": "mps", "detail": ""}
    make_node(example.h100, name="h1", gpus=6, report={"enforcement": enforcement})

    done = rpmctl(live_server, root, "pools")

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{example.bare_metal.name}\t0/0\t8 gpu\t-\t-\t\t-",
        f"{example.h100.name}\t1/1\t8 gpu\t-\t6 gpu\t\tenforced",
    ]
    assert done.stderr == f"{example.h100.name}: Configured 8 GPU, healthy nodes have 6.\n"
    assert rpmctl(live_server, charlie, "pools").stdout == ""
