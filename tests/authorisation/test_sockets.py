"""The live socket tells everybody what the rules say, and lets them follow nothing else."""

import pytest

from tests.authorisation.asking import Asker
from tests.authorisation.listening import socket_findings
from tests.authorisation.roles import ROLES, Role

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_everybody_watches_what_the_rules_say(asker: Asker, role: Role) -> None:
    wrong = list(socket_findings(asker, role))

    assert wrong == []
