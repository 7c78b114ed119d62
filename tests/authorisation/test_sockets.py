"""The sockets send everybody what the rules say, and let them follow nothing else."""

import pytest
from django.db import transaction

from apps.accounts.models import Scope, User
from apps.core.errors import Conflict, NotAllowed, NotFound
from apps.execution.services.streams import WantedStream, stream_target
from apps.tasks.models import Task
from tests.authorisation.requester import Requester
from tests.authorisation.roles import ADMIN, NOBODY, QUEUE_ADMIN, ROLES, TEAM_A, Relation, Role
from tests.authorisation.socket_client import socket_findings
from tests.authorisation.world import SHARED

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_everybody_watches_what_the_rules_say(requester: Requester, role: Role) -> None:
    wrong = list(socket_findings(requester, role))

    assert wrong == []


@pytest.mark.parametrize("role", [one for one in ROLES if one is not NOBODY], ids=str)
def test_only_who_manages_a_task_has_streams_into_it(requester: Requester, role: Role) -> None:
    person = requester.world.people[role.person]
    running = {
        key: task for key, task in requester.world.objects.items() if key[0] in ("running", SHARED)
    }

    found = {key: _answer(person, task) for key, task in running.items() if isinstance(task, Task)}

    assert found
    assert found == {key: _wanted(role, *key) for key in found}


def _wanted(role: Role, kind: str, place: str, owner: str) -> str:
    relation = role.relation(place, owner)
    if role is ADMIN or relation in (Relation.OWN, Relation.BELOW):
        return "allowed"
    is_shown = relation is Relation.MATE or (kind == SHARED and role is TEAM_A)
    return "forbidden" if is_shown or role is QUEUE_ADMIN else "hidden"


def _answer(person: User, task: Task) -> str:
    try:
        with transaction.atomic():
            stream_target(
                actor=person,
                scope=Scope.ADMINISTER,
                task_id=task.pk,
                wanted=WantedStream(kind="shell"),
            )
            transaction.set_rollback(True)
    except NotFound:
        return "hidden"
    except NotAllowed:
        return "forbidden"
    except Conflict:
        # The nodes of this world run nothing.
        return "allowed"
    return "allowed"
