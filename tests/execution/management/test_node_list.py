"""`manage.py node`: what a node says of itself, on a user's terminal."""

from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.core.errors import RpmError
from apps.execution.management.commands import node as command
from apps.nodes.models import Node
from tests.services.sshd import SshdNode

# Renames the window, clears the screen, and would make a line of its own.
HOSTILE = "out\x1b]0;owned\x07 of\x1b[2J disk\nn2\tpool\thealthy"
SANITIZED = "out of disk n2 pool healthy"

NOW = datetime(2026, 5, 1, tzinfo=UTC)

pytestmark = pytest.mark.django_db


def test_the_list_holds_one_sanitized_line_per_node() -> None:
    Node.objects.create(name="n1", address="10.0.0.1", state_detail=HOSTILE)
    printed = StringIO()

    call_command("node", "list", stdout=printed)

    [line] = printed.getvalue().splitlines()
    assert line.split("\t")[::4] == ["n1", SANITIZED]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"paused_at": NOW}, "paused (a new fan), healthy"),
        ({"is_draining": True}, "draining (a new fan), healthy"),
        ({"paused_at": NOW, "is_draining": True}, "paused (a new fan), draining, healthy"),
    ],
)
def test_the_list_says_why_a_node_is_paused(change: dict[str, Any], want: str) -> None:
    Node.objects.create(name="n1", state="healthy", pause_reason="a new\nfan", **change)
    printed = StringIO()

    call_command("node", "list", stdout=printed)

    assert printed.getvalue().split("\t")[3] == want


def test_an_error_in_the_words_of_a_node_is_one_sanitized_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(_node: Node) -> None:
        raise RpmError(HOSTILE)

    Node.objects.create(name="n1", address="10.0.0.1")
    monkeypatch.setattr(command, "node_examine", failing)

    with pytest.raises(CommandError, match=f"^{SANITIZED}$"):
        call_command("node", "check", "n1")


@pytest.mark.django_db
def test_a_key_that_nobody_can_confirm_is_named_by_an_option(
    ssh_node: SshdNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO())

    with pytest.raises(CommandError, match="--fingerprint"):
        call_command(
            *("node", "add", "far", "--address", ssh_node.address, "--user", ssh_node.user),
            *("--port", str(ssh_node.port), "--key", str(ssh_node.key_path)),
        )


@pytest.mark.parametrize("number", ["0", "99999", "x"])
def test_a_port_that_is_none_is_refused_with_the_bounds(number: str) -> None:
    with pytest.raises(CommandError, match="between 1 and 65535"):
        call_command("node", "add", "far", "--port", number)
