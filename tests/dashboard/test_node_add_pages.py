"""What the page that adds a node shows for what was chosen."""

import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.execution.services.node_registration import node_add
from apps.nodes.models import Node
from rpm.env import InstallationFolder
from tests.dashboard.conftest import ClientFor
from tests.dashboard.test_node_pages import ADD, errors_at, page_of
from tests.dashboard.test_pages import text
from tests.execution.services.test_node_changes import reached_by
from tests.people import Example
from tests.services.sshd import SshdNode

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(root: User, client_for: ClientFor) -> Client:
    return client_for(root)


@pytest.mark.parametrize(
    ("chosen", "is_allowed"),
    [
        ({"runtime": "podman"}, False),
        ({"runtime": "process"}, True),
        ({"runtime": "docker", "allows_process": "on"}, True),
    ],
)
def test_the_command_that_prepares_a_machine_allows_the_processes_that_are_chosen(
    admin: Client, chosen: dict[str, Any], *, is_allowed: bool
) -> None:
    lines = admin.post(ADD, {"name": "gpu01", "user": "rpm-node"} | chosen).context["lines"]

    assert ("--allow process" in lines[1]) == is_allowed


def test_the_commands_fit_a_server_with_systemd(admin: Client, settings: Settings) -> None:
    settings.HOME = InstallationFolder(Path("/var/lib/rpm"))
    plain = admin.post(ADD, {"name": "gpu01", "user": "rpm-node"}).context["lines"]

    settings.SERVICE_ACCOUNT = "rpm"
    shown = admin.post(ADD, {"name": "gpu01", "user": "rpm-node"})
    lines = shown.context["lines"]
    of_root = admin.post(ADD, {"name": "gpu01", "user": "root"}).context["lines"]

    make_key = "ssh-keygen -t ed25519 -N '' -f /var/lib/rpm/gpu01"
    options = "--public-key /var/lib/rpm/gpu01.pub --account rpm-node --runtime podman"
    manage = f"{sys.executable} {settings.BASE_DIR}/manage.py"
    assert plain[:2] == [make_key, f"{manage} node prepare {options} > prepare-gpu01.sh"]
    assert lines[:2] == [
        f"runuser -u rpm -- {make_key}",
        f"rpm-manage node prepare {options} > prepare-gpu01.sh",
    ]
    assert of_root[0] == lines[0]
    assert "first two commands on the server as root." in text(shown)


def test_a_shared_machine_is_offered_once_it_was_refused(
    admin: Client, ssh_node: SshdNode, example: Example, settings: Settings
) -> None:
    facts = reached_by(ssh_node) | {"pool": example.h100}
    node_add(name="first", actor=None, host_key=ssh_node.host_key, **facts)
    settings.HOME = InstallationFolder(ssh_node.folder)
    second = facts | {
        "name": "second",
        "pool": example.h100.pk,
        "key": ssh_node.key_path.name,
        "state_dir": f"{ssh_node.home}-2",
        "fingerprint": ssh_node.host_key.fingerprint,
    }
    assert "is_shared_machine" not in admin.get(ADD).content.decode()

    refused = admin.post(ADD, second)
    assert list(errors_at(refused)) == ["address", "is_shared_machine"]
    assert 'name="is_shared_machine"' in refused.content.decode()
    ticked = second | {"is_shared_machine": "on"}
    assert "4. Preflight checks" in text(admin.post(ADD, ticked))
    added = admin.post(ADD, ticked | {"step": "add"})

    assert added["Location"] == page_of(Node.objects.get(name="second"), "detail")
