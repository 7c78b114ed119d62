"""No page, card or REST answer tells a tenant anything of its rival on the same pool.

Whatever is the rival's has RIVAL in its name; what it holds, and how many tasks of it there are, is
NUMBER, which nothing else is.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.dashboard.live import CARDS
from apps.dashboard.render import card_render
from apps.policies.models import Pool, Profile, Queue
from apps.tasks.models import Task, TaskGroup
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from apps.vaults.services.vaults import vault_create
from tests.dashboard.conftest import ClientFor, RunIn
from tests.page_words import without_random
from tests.people import Example
from tests.tenants import RIVAL, Organisation, Organisations

pytestmark = pytest.mark.django_db

# Thousandths: 1.137 GPUs, of which nothing else has so many.
NUMBER = 1137
LEAKED = re.compile(rf"{RIVAL}|(?<!\d)1[.,]?{NUMBER % 1000}(?!\d)", re.IGNORECASE)


@pytest.fixture(autouse=True)
def ids_beyond_the_number() -> None:
    """Sequences of PostgreSQL go on from test to test: no id may be the number by chance."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT setval(format('%%I.%%I', schemaname, sequencename)::regclass, %s) "
            "FROM pg_sequences WHERE coalesce(last_value, 0) < %s",
            [10 * NUMBER, 10 * NUMBER],
        )


def enqueue(owner: User, queue: Queue, name: str) -> Task:
    described = TaskSpec(name=name, queue=queue.name, command=["true"])
    return Task.objects.get(pk=task_submit(actor=owner, spec=described).pk)


@pytest.fixture
def busy(root: User, organisations: Organisations, run_in: RunIn) -> dict[str, list[Task]]:
    """Both run and wait on one pool; each has vaults, credentials and accounts."""
    found: dict[str, list[Task]] = {}
    for name, one in (("acme", organisations.acme), (RIVAL, organisations.rival)):
        tasks = [enqueue(one.member, one.queue, f"{name}-task-{number}") for number in range(4)]
        for task in tasks[:2]:
            run_in(task, organisations.example.h100, gpu=NUMBER if name == RIVAL else 2000)
        vault_create(actor=root, name=f"{name}-vault", group=one.group, text="a = 1")
        vault_create(actor=one.member, name=f"{name}-own-vault", text="a = 1")
        credential_create(user=one.member, label=f"{name}-credential")
        found[name] = tasks
    return found


def leaks_nothing(content: str, where: str, tasks: list[Task]) -> None:
    shown = without_random(content)
    assert (leak := LEAKED.search(shown)) is None, (
        f"{where} tells {shown[max(0, leak.start() - 80) : leak.end() + 40]!r}"
    )
    assert not any(str(task.pk) in content for task in tasks), f"{where} tells a task's id"


def patterns(resolver: Any, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for one in resolver.url_patterns:
        path = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from patterns(one, path)
        else:
            yield path, one


def pages() -> list[URLPattern]:
    """Those of the site itself, REST and the admin site left out."""
    every = patterns(get_resolver())
    return [one for path, one in every if one.name and not path.startswith(("admin/", "api/"))]


def rest_lists() -> list[str]:
    """Addresses of REST that need no id."""
    every = patterns(get_resolver(), "/")
    paths = {path.replace("^", "").replace("\\Z", "").replace("$", "") for path, _ in every}
    found = {path for path in paths if path.startswith("/api/v1/") and not re.search(r"[(<]", path)}
    return sorted(path for path in found if "format" not in path and not path.endswith("v1/"))


def ids_of(one: Organisation, tasks: list[Task]) -> dict[str, list[Any]]:
    """Keys of what is an organisation's, by the first word of the names of pages."""
    return {
        "policy": [one.team.pk, one.top.pk],
        "queue": [one.queue.pk],
        "task": [task.pk for task in tasks],
        "group": [one.group.pk, one.admins.pk],
        "person": [one.member.pk, one.admin.pk],
        "vault": list(one.group.vaults.values_list("pk", flat=True)),
        "tenant": [one.tenant.pk],
    }


def addresses(keys: dict[str, list[Any]]) -> Iterator[str]:
    for one in pages():
        kind = (one.name or "").split("_")[0]
        names = list(one.pattern.converters)
        if names == ["pk"] and kind in keys:
            yield from (reverse(str(one.name), args=[key]) for key in keys[kind])


@pytest.mark.parametrize("role", ["member", "admin"])
def test_no_page_tells_of_the_rival(
    organisations: Organisations, busy: dict[str, list[Task]], client_for: ClientFor, role: str
) -> None:
    client = client_for(getattr(organisations.acme, role))
    plain = [reverse(str(one.name)) for one in pages() if not one.pattern.converters]
    plain = [path for path in plain if path not in {"/sign-out/", "/healthz", "/readyz"}]

    for path in [*plain, *addresses(ids_of(organisations.acme, busy["acme"]))]:
        leaks_nothing(page(client, path), path, busy[RIVAL])


def test_the_same_pages_tell_the_rival_of_itself(
    organisations: Organisations, busy: dict[str, list[Task]], client_for: ClientFor
) -> None:
    """Else the others would show nothing by finding nothing."""
    client = client_for(organisations.rival.admin)
    lists = ["/", "/policies/", "/queues/", "/tasks/", "/settings/people/", "/settings/vaults/"]
    single = addresses(ids_of(organisations.rival, busy[RIVAL]))

    assert [path for path in lists if not LEAKED.search(without_random(page(client, path)))] == []
    assert sum(bool(LEAKED.search(without_random(page(client, path)))) for path in single) > 25


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code < 500, path
    body = b"".join(answer) if answer.streaming else answer.content
    return body.decode() + str(dict(answer.headers))


@pytest.mark.parametrize("role", ["member", "admin"])
def test_what_is_the_rivals_does_not_exist(
    organisations: Organisations, busy: dict[str, list[Task]], client_for: ClientFor, role: str
) -> None:
    client = client_for(getattr(organisations.acme, role))
    keys = ids_of(organisations.rival, busy[RIVAL])

    for path in addresses(keys):
        got, sent = client.get(path), client.post(path)
        # 400: what was sent is looked at first, whatever the address names.
        assert {got.status_code, sent.status_code} <= {400, 404, 405}, path
        assert got.status_code != 400, path
        leaks_nothing(sent.content.decode(), path, busy[RIVAL])


@pytest.mark.parametrize("role", ["member", "admin"])
def test_no_card_tells_of_the_rival(
    organisations: Organisations, busy: dict[str, list[Task]], role: str
) -> None:
    reader = getattr(organisations.acme, role)
    foreign = ids_of(organisations.rival, busy[RIVAL])
    own = ids_of(organisations.acme, busy["acme"])
    keys = ["", "view=all", "view=all&name=only", "name=only"]
    keys += [f"view=all&queue={organisations.rival.queue.pk}"]
    keys += [str(one) for found in (*foreign.values(), *own.values()) for one in found]

    for name in CARDS:
        for key in keys:
            shown = card_render(name, key, reader)
            if shown is not None:
                # The name of the card stands in it, and is what was asked for.
                html = shown.html.replace(key, "") if key else shown.html
                leaks_nothing(html, f"{name}:{key}", busy[RIVAL])


@pytest.mark.parametrize("role", ["member", "admin"])
def test_no_list_of_rest_tells_of_the_rival(
    organisations: Organisations, busy: dict[str, list[Task]], api_as: Any, role: str
) -> None:
    client = api_as(getattr(organisations.acme, role))
    rival = organisations.rival
    filters = ["", f"?queue={rival.queue.name}", f"?owner={rival.member.username}", "?q=only"]
    filters += [f"?group={rival.group.pk}", f"?policy={rival.team.pk}", "?search=only"]

    for path in rest_lists():
        if "schema" in path or "docs" in path:
            continue
        for asked in filters:
            answer = client.get(path + asked)
            assert answer.status_code < 500, path
            body = b"".join(answer) if answer.streaming else answer.content
            content = body.decode().replace(asked.removeprefix("?").replace("=", ""), "")
            if answer.status_code == 200:
                leaks_nothing(content, path + asked, busy[RIVAL])


NAMED: list[Any] = [
    pytest.param("policies/", {"name": "n", "group": "GROUP", "parent": "acme-top"}, id="a group"),
    pytest.param("policies/", {"name": "n", "group": "acme-team-group", "parent": "TOP"}, id="top"),
    pytest.param("users/", {"username": "n", "groups": ["GROUP"]}, id="invited into a group"),
    pytest.param("vaults/", {"name": "n", "group": "GROUP"}, id="a vault of a group"),
    pytest.param("tasks/", {"name": "n", "command": ["x"], "queue": "QUEUE"}, id="a queue"),
    pytest.param("tasks/check/", {"name": "n", "command": ["x"], "queue": "QUEUE"}, id="checked"),
]


@pytest.mark.parametrize("role", ["member", "admin"])
@pytest.mark.parametrize(("path", "body"), NAMED)
def test_names_of_the_rival_answer_as_names_that_there_are_not(
    organisations: Organisations, api_as: Any, path: str, body: dict[str, Any], role: str
) -> None:
    client, rival = api_as(getattr(organisations.acme, role)), organisations.rival
    names = {"GROUP": rival.group.name, "TOP": rival.top.name, "QUEUE": rival.queue.name}

    def sent(known: dict[str, str]) -> tuple[int, str]:
        filled = {
            key: [known.get(one, one) for one in value]
            if isinstance(value, list)
            else known.get(value, value)
            for key, value in body.items()
        }
        answer = client.post(f"/api/v1/{path}", filled, format="json")
        content = re.sub(r'"request_id": ?"[^"]*"', "", answer.content.decode())
        for one in known.values():
            content = content.replace(one, "?")
        return answer.status_code, content

    assert sent(names) == sent({key: f"there-is-no-{key.lower()}" for key in names})


REASONS: list[Any] = [
    pytest.param("outranked", {"pool": "POOL", "policies": ["TEAM"], "count": NUMBER}, id="rank"),
    pytest.param(
        "held",
        {"pool": "POOL", "policy": "TEAM", "key": "gpu", "free": 3000, "limit": NUMBER}
        | {"needed": 2000, "tasks": ["TASK"]},
        id="held",
    ),
    pytest.param("draining", {"pool": "POOL", "tasks": ["TASK"] * 3}, id="draining"),
    pytest.param(
        "protected", {"pool": "POOL", "tasks": ["TASK"] * 3, "until_us": NUMBER}, id="protected"
    ),
]


@pytest.mark.parametrize("role", ["member", "admin"])
@pytest.mark.parametrize(("code", "detail"), REASONS)
def test_a_reason_says_what_waits_for_others_without_their_numbers(
    organisations: Organisations,
    busy: dict[str, list[Task]],
    api_as: Any,
    client_for: ClientFor,
    code: str,
    detail: dict[str, Any],
    role: str,
) -> None:
    reader, waiting = getattr(organisations.acme, role), busy["acme"][3]
    ids = {
        "POOL": organisations.example.h100.pk,
        "TEAM": organisations.rival.team.pk,
        "TASK": str(busy[RIVAL][0].pk),
    }
    filled = {
        key: [ids[one] for one in value] if isinstance(value, list) else ids.get(str(value), value)
        for key, value in detail.items()
    }
    task_groups = TaskGroup.objects.filter(pk=waiting.task_group_id or 0)
    task_groups.update(reason_code=code, reason={"reasons": [{"code": code, "details": [filled]}]})
    task_groups.update(head_id=busy["acme"][2].pk)

    explanation = api_as(reader).get(f"/api/v1/tasks/{waiting.pk}/explain/").content.decode()
    shown = client_for(reader).get(f"/tasks/{waiting.pk}/").content.decode()
    line = client_for(reader).get(f"/queues/{organisations.acme.queue.pk}/").content.decode()

    for where, content in (("REST", explanation), ("task", shown), ("queue", line)):
        leaks_nothing(content, where, busy[RIVAL])
        assert "3 tasks" not in content.replace("3 tasks ahead", ""), where
    assert code in explanation


def test_of_a_pool_that_one_sees_the_rivals_part_is_only_gone(
    organisations: Organisations,
    busy: dict[str, list[Task]],
    client_for: ClientFor,
    example: Example,
) -> None:
    """What is left tells what others have: that much everybody sees who starts tasks there."""
    ada = organisations.acme.member
    assign_perm("view_pool", ada, Pool.objects.get(pk=example.h100.pk))

    for path in ("/", "/resources/"):
        leaks_nothing(client_for(ada).get(path).content.decode(), path, busy[RIVAL])


def test_profiles_say_what_a_task_takes_and_not_who_uses_them(
    organisations: Organisations, busy: dict[str, list[Task]], api_as: Any
) -> None:
    answer = api_as(organisations.acme.admin).get("/api/v1/profiles/")

    listed = {one["name"] for one in answer.json()["results"]}
    assert listed == set(Profile.objects.values_list("name", flat=True))
    leaks_nothing(answer.content.decode(), "profiles", busy[RIVAL])


@pytest.mark.parametrize("noun", ["policies", "groups", "users"])
def test_a_name_that_is_taken_does_not_say_by_whom(
    organisations: Organisations, api_as: Any, noun: str
) -> None:
    client, rival = api_as(organisations.acme.admin), organisations.rival
    taken: dict[str, dict[str, Any]] = {
        "policies": {"name": rival.top.name, "group": "acme-team-group", "parent": "acme-top"},
        "groups": {"name": rival.group.name},
        "users": {"username": rival.member.username, "groups": ["acme-team-group"]},
    }

    answer = client.post(f"/api/v1/{noun}/", taken[noun], format="json")

    assert answer.status_code == (409 if noun == "policies" else 400)
    assert list(answer.json()["fields"]) == ["username" if noun == "users" else "name"]
    assert RIVAL not in answer.content.decode()
