"""`rpmctl group members`, against a real server."""

import json

import pytest

from apps.accounts.models import User
from rpm_client import RefusedError
from tests.client.conftest import ctl

pytestmark = pytest.mark.django_db(transaction=True)


def test_members_are_added_listed_and_removed(
    administration: dict[str, str], access: dict[str, str], alice: User, charlie: User
) -> None:
    ctl(administration, "group", "create", "name=Robots")
    members = ("group", "members")

    added = ctl(administration, *members, "add", "robots", "alice", str(charlie.pk))
    listed = ctl(administration, *members, "list", "Robots")
    removed = ctl(administration, *members, "remove", "Robots", "alice", "--json")
    rows = json.loads(ctl(administration, *members, "list", "Robots", "--json").stdout)

    assert added.stdout == "Robots has 2 members.\n", added.output
    assert [line.split("\t")[1] for line in listed.stdout.splitlines()] == ["alice", "charlie"]
    assert json.loads(removed.stdout)["members"] == 1, removed.output
    assert [row["username"] for row in rows] == ["charlie"]


def test_members_that_are_unknown_or_of_no_concern_are_refused(
    administration: dict[str, str], access: dict[str, str], alice: User, charlie: User
) -> None:
    ctl(administration, "group", "create", "name=Robots")

    unknown = ctl(administration, "group", "members", "add", "Robots", "nobody")
    nowhere = ctl(administration, "group", "members", "add", "Machines", "alice")
    by_alice = ctl(access, "group", "members", "add", "Robots", "alice")

    assert isinstance(unknown.exception, RefusedError)
    assert "nobody" in str(unknown.exception)
    assert nowhere.exit_code == 2
    assert by_alice.exit_code != 0
    assert alice.groups.filter(name="Robots").count() == 0


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("token",), "token"),
        (("preview",), "starts"),
        (("maintenance", "--hours", "1"), "maintenance_until"),
        (("maintenance", "--end"), "maintenance_until"),
    ],
)
def test_commands_of_administrators_print_json(
    administration: dict[str, str], words: tuple[str, ...], field: str
) -> None:
    done = ctl(administration, *words, "--json")

    assert field in json.loads(done.stdout), done.output


def test_nodes_are_listed_as_json(administration: dict[str, str]) -> None:
    assert json.loads(ctl(administration, "node", "list", "--json").stdout) == []
