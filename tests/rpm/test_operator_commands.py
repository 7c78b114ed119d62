"""What commands of operators say."""

from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from apps.accounts.models import User
from apps.nodes.models import NodeState
from rpm.health import check_nodes
from tests.allocation.state import make_node, make_server
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_setup_token_says_that_there_is_an_account(root: User) -> None:
    printed = StringIO()

    call_command("setup_token", stdout=printed)

    assert "There is an account already: sign in, or run" in printed.getvalue()


def test_the_fix_names_the_node(example: Example) -> None:
    node = make_node(example.h100, name="gpu07")
    make_server()
    node.state = NodeState.REFUSED
    node.save()

    fix = check_nodes().fix

    assert "manage.py node check gpu07." in fix
    assert "manage.py node rekey gpu07." in fix


def test_an_unsigned_serial_is_dismissed_on_the_server(example: Example) -> None:
    node = make_node(example.h100, name="gpu07")
    make_server()
    node.serial_refused_at = timezone.now()
    node.save()
    assert check_nodes().fix.endswith("manage.py node dismiss-serial gpu07.")

    call_command("node", "dismiss-serial", "gpu07", stdout=StringIO())

    node.refresh_from_db()
    assert node.serial_refused_at is None
