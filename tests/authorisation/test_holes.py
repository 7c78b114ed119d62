"""Checks the matrix itself: each hole is made for a moment, and must be found."""

import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
from django.contrib.admin.views.autocomplete import AutocompleteJsonView

from apps.access.selectors import queues_visible_to
from apps.access.vaults import VaultPermissions, vault_permissions
from apps.accounts.api.permissions import HasScope
from apps.accounts.api.users import UserViewSet
from apps.accounts.models import Credential, User
from apps.accounts.selectors import credentials_of, people_visible_to
from apps.core.errors import NotFound
from apps.dashboard import consumers
from apps.dashboard.access import person, require_administrator
from apps.dashboard.consumers import LiveConsumer
from apps.dashboard.render import card_render
from apps.policies.models import Queue
from apps.tasks.api.views import TaskViewSet
from apps.tasks.models import Task
from apps.tasks.selectors.visibility import (
    TaskPermissions,
    task_permissions,
    tasks_matching_filters,
    visible_task,
)
from apps.tasks.selectors.visibility import tasks_visible_to as tasks_seen
from apps.tasks.services.queues import check_can_manage_task
from tests.authorisation.findings import findings
from tests.authorisation.interference import changes
from tests.authorisation.requester import Requester
from tests.authorisation.roles import QUEUE_ADMIN, TEAM_A, Role
from tests.authorisation.socket_client import socket_findings
from tests.authorisation.surfaces import surfaces
from tests.authorisation.values import value_findings

pytestmark = pytest.mark.django_db

Patch = pytest.MonkeyPatch
Find = Callable[[Requester], Iterator[str]]


def everywhere(patch: Patch, known: Any, broken: Any) -> None:
    """Put another function in the place of one, wherever it was imported to."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith(("apps.", "rpm.")):
            for name, value in list(vars(module).items()):
                if value is known:
                    patch.setattr(module, name, broken)


def asked(*patterns: str, role: Role = TEAM_A) -> Find:
    """The part of the matrix that these addresses are."""

    def find(requester: Requester) -> Iterator[str]:
        rows = [
            one
            for one in surfaces()
            if one.method != "WATCH" and any(fnmatchcase(str(one), each) for each in patterns)
        ]
        return findings(requester, role, rows)

    return find


def watched(requester: Requester) -> Iterator[str]:
    return socket_findings(requester, TEAM_A)


def given(address: str) -> Find:
    """The part of the matrix that puts strange values where this address takes any."""

    def find(requester: Requester) -> Iterator[str]:
        return value_findings(requester, TEAM_A, [address])

    return find


def made(requester: Requester) -> Iterator[str]:
    return changes(requester, TEAM_A)


# --- the holes ---------------------------------------------------------------------------------


def a_list_without_visible_to(patch: Patch, _asker: Requester) -> None:
    everywhere(patch, queues_visible_to, lambda _user: Queue.objects.filter(removed_at=None))


def tasks_of_everybody(patch: Patch, _asker: Requester) -> None:
    everywhere(patch, tasks_seen, lambda _user: Task.objects.all())


def credentials_of_everybody(patch: Patch, _asker: Requester) -> None:
    everywhere(patch, credentials_of, lambda _user: Credential.objects.all())


def a_vault_that_anybody_reads(patch: Patch, _asker: Requester) -> None:
    def broken(user: User, vault: Any) -> VaultPermissions:
        known = vault_permissions(user, vault)
        return VaultPermissions(True, known.change, known.own, known.switch_off, known.enforce)

    everywhere(patch, vault_permissions, broken)


def a_log_for_whoever_sees_the_task(patch: Patch, _asker: Requester) -> None:
    def broken(user: User, task: Task) -> TaskPermissions:
        return TaskPermissions(content=True, log=True, manage=task_permissions(user, task).manage)

    everywhere(patch, task_permissions, broken)


def a_service_that_does_not_ask(patch: Patch, _asker: Requester) -> None:
    everywhere(patch, check_can_manage_task, lambda _user, _task: None)


def an_endpoint_without_its_permission(patch: Patch, _asker: Requester) -> None:
    patch.setattr(UserViewSet, "permission_classes", (HasScope,))


def people_for_everybody(patch: Patch, _asker: Requester) -> None:
    patch.setattr(UserViewSet, "permission_classes", (HasScope,))
    everywhere(patch, people_visible_to, lambda _user: _people())


def _people() -> Any:
    return User.objects.filter(is_service=False).extra(select={"last_active": "date_joined"})


def a_page_that_takes_everybody_for_an_administrator(patch: Patch, _asker: Requester) -> None:
    everywhere(patch, require_administrator, person)


def an_autocomplete_that_asks_nobody(patch: Patch, _asker: Requester) -> None:
    patch.setattr(AutocompleteJsonView, "has_perm", lambda *_: True)


def a_sentence_that_names_the_task(patch: Patch, _asker: Requester) -> None:
    def broken(user: User, key: Any) -> Task:
        try:
            return visible_task(user, key)
        except NotFound:
            hidden = Task.objects.filter(pk=key).first()
            words = hidden.name if hidden is not None else "nothing"
            raise NotFound(f"You may not see {words}.") from None

    everywhere(patch, visible_task, broken)


def a_filter_on_all_there_is(patch: Patch, _asker: Requester) -> None:
    def broken(user: User, wanted: Any) -> Any:
        owner = wanted.get("owner", "")
        if User.objects.filter(username=owner).exists():
            return Task.objects.filter(owner__username=owner)
        return tasks_matching_filters(user, wanted)

    everywhere(patch, tasks_matching_filters, broken)


def a_count_of_all_there_is(patch: Patch, _asker: Requester) -> None:
    answer = TaskViewSet.get_paginated_response

    def broken(view: Any, data: Any) -> Any:
        response = answer(view, data)
        response.data["count"] = Task.objects.count()
        return response

    patch.setattr(TaskViewSet, "get_paginated_response", broken)


def a_socket_that_joins_any_group(patch: Patch, _asker: Requester) -> None:
    push = LiveConsumer._push

    async def broken(consumer: Any, card: str, user: User, noticed: float) -> None:
        await consumer._join(card.replace("_card:", ".").replace("_head:", "."))
        await push(consumer, card, user, noticed)

    patch.setattr(LiveConsumer, "_push", broken)


def a_socket_that_shows_what_administrators_see(patch: Patch, requester: Requester) -> None:
    root = requester.world.people["root"]
    patch.setattr(consumers, "card_audience", lambda *_: "admins")
    patch.setattr(consumers, "card_render", lambda name, key, _user: card_render(name, key, root))


HOLES: list[tuple[Callable[[Patch, Requester], None], Find]] = [
    (a_list_without_visible_to, asked("GET /api/v1/queues/*")),
    (tasks_of_everybody, asked("GET /api/v1/tasks/")),
    (credentials_of_everybody, asked("* /api/v1/credentials/*")),
    (a_vault_that_anybody_reads, asked("GET /api/v1/vaults/<pk>/", "GET /settings/vaults/<pk>/")),
    (a_log_for_whoever_sees_the_task, asked("GET /tasks/<pk>/log/*")),
    (a_service_that_does_not_ask, asked("POST /api/v1/tasks/<pk>/abort/")),
    (an_endpoint_without_its_permission, asked("GET /api/v1/users/")),
    (people_for_everybody, asked("GET /api/v1/users/*")),
    (a_page_that_takes_everybody_for_an_administrator, asked("GET /settings/audit/*")),
    (an_autocomplete_that_asks_nobody, asked("GET /admin/autocomplete/", role=QUEUE_ADMIN)),
    (a_sentence_that_names_the_task, asked("GET /api/v1/tasks/<pk>/")),
    (a_filter_on_all_there_is, given("/api/v1/tasks/")),
    (a_count_of_all_there_is, made),
    (a_socket_that_joins_any_group, watched),
    (a_socket_that_shows_what_administrators_see, watched),
]


@pytest.mark.parametrize(("hole", "find"), HOLES, ids=[hole.__name__ for hole, _ in HOLES])
def test_a_hole_is_found(
    requester: Requester, hole: Callable[[Patch, Requester], None], find: Find
) -> None:
    assert list(find(requester)) == []

    with pytest.MonkeyPatch.context() as patch:
        hole(patch, requester)
        found = list(find(requester))

    assert found != []
