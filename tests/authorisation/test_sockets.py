"""The live socket sends everybody what the rules say, and lets them follow nothing else."""

import pytest

from tests.authorisation.requester import Requester
from tests.authorisation.roles import ROLES, Role
from tests.authorisation.socket_client import socket_findings

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_everybody_watches_what_the_rules_say(requester: Requester, role: Role) -> None:
    wrong = list(socket_findings(requester, role))

    assert wrong == []
