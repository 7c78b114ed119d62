"""Lists of the admin site: what they may be filtered by, and actions on several rows."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.services.pools import pool_pause
from apps.core.errors import Conflict
from apps.policies.models import DraftState, Pool
from apps.tasks.models import Task
from tests.configuration.site import url
from tests.configuration.test_admin import wanted_rows
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("label", "query"),
    [
        ("tasks.Task", "environment__DB_PASSWORD__startswith=s3"),
        ("tasks.Task", "secrets__HF_TOKEN__startswith=h"),
        ("tasks.Task", "owner__password__startswith=a"),
        ("tasks.Task", "id__startswith=0"),
        ("tasks.Attempt", "task__environment__A=1"),
        ("accounts.Credential", "secret_hash__startswith=a"),
        ("accounts.User", "password__startswith=a"),
        ("accounts.User", "session_nonce__startswith=a"),
        ("accounts.User", "groups__name__startswith=d"),
        ("policies.RegistryCredential", "sealed_password__startswith=a"),
        ("policies.RegistryCredential", "group__user__password__startswith=a"),
        ("nodes.Node", "environment__A__startswith=a"),
    ],
)
def test_what_is_shown_to_nobody_is_no_filter(
    site: Client, example: Example, label: str, query: str
) -> None:
    models = wanted_rows()

    assert site.get(f"{url(models[label], 'changelist')}?{query}").status_code == 400


def test_every_filter_that_is_offered_works(site: Client, example: Example) -> None:
    followed = 0
    for model in wanted_rows().values():
        address = url(model, "changelist")
        page = site.get(address)
        lists = page.context["cl"].filter_specs if page.status_code == 200 else []
        for one in lists:
            # All but the last ones of a filter are made alike.
            choices = list(one.choices(page.context["cl"]))
            for choice in (*choices[:2], *choices[-1:]):
                answer = site.get(f"{address}{choice['query_string']}")
                assert answer.status_code == 200, (model, choice)
                followed += 1
        row = model._default_manager.first()
        if row is not None and lists:
            found = site.get(f"{address}?{model._meta.pk.name}__exact={row.pk}")
            assert found.context["cl"].result_count == 1, model

    assert followed > 30
    assert site.get(f"{url(Task, 'changelist')}?state__exact=draft").status_code == 200


def test_of_several_groups_all_are_deleted_or_none(site: Client, example: Example) -> None:
    free = Group.objects.create(name="zz-free")
    chosen = {"action": "delete_selected", "post": "yes"}
    address = url(Group, "changelist")

    answer = site.post(address, {**chosen, "_selected_action": [free.pk, example.dev.group_id]})

    assert any("is the group of" in str(one) for one in get_messages(answer.wsgi_request))
    assert Group.objects.filter(pk=free.pk).exists()
    assert not LogEntry.objects.exists()
    site.post(address, {**chosen, "_selected_action": [free.pk]})
    assert not Group.objects.filter(pk=free.pk).exists()
    assert LogEntry.objects.count() == 1


def test_of_several_pools_all_are_paused_or_none(
    site: Client, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(*, actor: User, pool: Pool, reason: str) -> None:
        if pool == example.bare_metal:
            raise Conflict("Not this one.")
        pool_pause(actor=actor, pool=pool, reason=reason)

    monkeypatch.setattr("apps.configuration.admin.live.pool_pause", pause)
    both = [example.h100.pk, example.bare_metal.pk]

    answer = site.post(url(Pool, "changelist"), {"action": "pause", "_selected_action": both})

    assert [str(one) for one in get_messages(answer.wsgi_request)] == ["Not this one."]
    assert not any(pool.is_paused for pool in Pool.objects.all())


def test_a_revision_is_restored_on_the_page_that_asks_first(site: Client, example: Example) -> None:
    revision, version = Revision.objects.latest("number"), DraftState.objects.get().version

    answer = site.post(
        url(Revision, "changelist"), {"action": "restore", "_selected_action": [revision.pk]}
    )

    assert answer["Location"] == reverse("revision_restore", args=[revision.number])
    assert DraftState.objects.get().version == version
