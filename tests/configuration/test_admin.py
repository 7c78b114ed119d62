"""The admin site: who enters, what it offers, and that saving goes through the services."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import JSONField
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.configuration.models import Revision
from apps.configuration.selectors import draft_document, live_document
from apps.events.models import Event
from apps.nodes.models import Node, Volume
from apps.policies.models import (
    DraftPool,
    DraftPoolLink,
    DraftProfile,
    DraftQueueRank,
    DraftState,
    Policy,
    Pool,
    Queue,
)
from apps.policies.selectors import limit_exceeders
from apps.policies.services import registry_credential_save
from apps.tasks.models import Attempt, Member, Task
from tests.allocation.state import enqueue, make_node
from tests.configuration.site import form_of, url
from tests.people import Example

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]


def run_something() -> None:
    """A task with an attempt on a node."""
    now = timezone.now()
    queue = Queue.objects.select_related("policy").earliest("pk")
    owner = User.objects.get(username="root")
    task = Task.objects.create(name="train", owner=owner, created_at=now, changed_at=now)
    pool, node = Pool.objects.earliest("pk"), Node.objects.earliest("pk")
    attempt = Attempt.objects.create(
        task=task, generation=1, queue=queue, policy=queue.policy, pool=pool, allocated_at=now
    )
    Member.objects.create(attempt=attempt, pool=pool, node=node)


def wanted_rows() -> dict[str, Any]:
    """One more row of the kinds that the example has none of."""
    Node.objects.create(name="n1", pool=Pool.objects.first())
    Volume.objects.create(name="data", path="/data")
    run_something()
    registry_credential_save(
        actor=None,
        group=Group.objects.earliest("pk"),
        registry="registry.example.org",
        username="robot",
        password="secret",
    )
    credential_create(user=User.objects.get(username="root"), label="laptop")
    return {model._meta.label: model for model in admin.site._registry}


def test_every_list_and_every_row_can_be_looked_at(site: Client, example: Example) -> None:
    models = wanted_rows()

    for label, model in models.items():
        for query in ("", "train", "7", "018f3a3e-0000-7000-8000-000000000000"):
            listed = site.get(url(model, "changelist"), {"q": query}, follow=True)
            assert listed.status_code == 200, (label, query)
        row = model._default_manager.first()
        if row is not None:
            assert site.get(url(model, "change", row.pk)).status_code == 200, label

    assert {"policies.DraftPool", "policies.Policy", "policies.Queue", "accounts.User"} <= set(
        models
    )


def test_lists_take_as_many_queries_however_long_they_are(
    site: Client, root: User, example: Example
) -> None:
    def queries(model: Any) -> int:
        with CaptureQueriesContext(connection) as captured:
            site.get(url(model, "changelist"))
        return len(captured)

    models = [DraftPool, DraftProfile, Pool, Policy, Queue, Node, Revision]
    wanted_rows()
    before = {model: queries(model) for model in models}
    for number in range(3):
        Node.objects.create(name=f"more-{number}", pool=example.h100)
        site.post(url(DraftPool, "add"), pool_form(site, name=f"pool {number}"))
        site.post(url(Policy, "add"), policy_form(site, name=f"policy {number}"))

    assert {model: queries(model) for model in models} == before


def test_only_administrators_enter(
    site_as: SignIn, alice: User, charlie: User, quinn: User, example: Example
) -> None:
    for person in (alice, charlie):
        answer = site_as(person).get(reverse("admin:index"))
        assert answer.status_code == 302
        assert "login" in answer["Location"]
    assert site_as(quinn).get(reverse("admin:index")).status_code == 200


def test_a_queue_admin_finds_queues_and_nothing_else(
    site_as: SignIn, quinn: User, example: Example
) -> None:
    client = site_as(quinn)

    for model in admin.site._registry:
        status = client.get(url(model, "changelist")).status_code
        assert status == (200 if model is Queue else 403), model
    for step in ("validate", "provision", "reset"):
        assert client.get(reverse(f"admin:draft_{step}")).status_code == 403
    connected = client.post(
        url(Queue, "add"),
        {"policy": example.dev.pk, "profile": live_profile("2xGPU"), "name": ""},
    )
    assert connected.status_code == 302
    assert Queue.objects.get(name="dev-2xgpu").policy == example.dev


def live_profile(name: str) -> int:
    return Pool.objects.filter(profiles__name=name).values_list("profiles", flat=True).first() or 0


def test_nobody_is_offered_the_flags_of_django(site: Client, root: User) -> None:
    form = site.get(url(User, "change", root.pk)).context["adminform"].form

    assert not {"is_staff", "is_superuser", "user_permissions"} & set(form.fields)


def pool_form(site: Client, **values: Any) -> dict[str, Any]:
    return form_of(site, url(DraftPool, "add")) | {"capacity": "8"} | values


def policy_form(site: Client, **values: Any) -> dict[str, Any]:
    group = Policy.objects.values_list("group", flat=True).first()
    return form_of(site, url(Policy, "add")) | {"group": group} | values


def test_a_pool_saved_with_its_links_counts_the_version_up_once(
    site: Client, example: Example
) -> None:
    pool = DraftPool.objects.get(name="H100 Half a Superpod")
    version = DraftState.objects.get().version
    data = form_of(site, url(DraftPool, "change", pool.pk))
    data |= {"capacity": '{"gpu": 16}', "links-0-execution_rank": "9"}

    saved = site.post(url(DraftPool, "change", pool.pk), data)

    assert saved.status_code == 302
    assert DraftState.objects.get().version == version + 1
    assert draft_document().pools[0].capacity == {"gpu": "16"}
    assert draft_document().pools[0].profiles == ("4xGPU", "8xGPU", "0.5xGPU", "2xGPU")
    assert live_document().pools[0].capacity == {"gpu": "8"}


def test_a_new_link_stands_last_in_both_orders(site: Client, example: Example) -> None:
    profile = DraftProfile.objects.get(name="2xGPU")
    pool = DraftPool.objects.get(name="Bare Metal Low END GPUs")
    data = form_of(site, url(DraftProfile, "change", profile.pk))
    data |= {"links-TOTAL_FORMS": "2", "links-1-pool": pool.pk, "links-1-profile": profile.pk}

    saved = site.post(url(DraftProfile, "change", profile.pk), data)

    assert saved.status_code == 302
    link = DraftPoolLink.objects.get(profile=profile, pool=pool)
    assert (link.routing_rank, link.execution_rank) == (1, 1)
    assert link.name == pool.name


def test_the_queuing_order_is_edited_in_the_draft(site: Client, example: Example) -> None:
    profile = DraftProfile.objects.get(name="4xGPU")
    data = form_of(site, url(DraftProfile, "change", profile.pk))
    data["queue_ranks-0-rank"] = "5"

    site.post(url(DraftProfile, "change", profile.pk), data)

    assert draft_document().profiles[0].queues == ("research-4xgpu", "dev-4xgpu")
    assert live_document().profiles[0].queues == ("dev-4xgpu", "research-4xgpu")


@pytest.mark.parametrize("capacity", ['{"gpu": -1}', '{"gpu": "0.1234"}', "NaN", '{"GPU": 1}', "["])
def test_a_bad_capacity_is_reported_at_its_field(
    site: Client, example: Example, capacity: str
) -> None:
    version = DraftState.objects.get().version

    answer = site.post(url(DraftPool, "add"), pool_form(site, name="new", capacity=capacity))

    assert answer.status_code == 200
    assert "capacity" in answer.context["adminform"].form.errors
    assert DraftState.objects.get().version == version
    assert not DraftPool.objects.filter(name="new").exists()


def test_a_row_that_breaks_the_document_is_refused_as_a_whole(
    site: Client, example: Example
) -> None:
    profile = DraftProfile.objects.get(name="2xGPU")
    data = form_of(site, url(DraftProfile, "change", profile.pk))
    data |= {"description": "Half done?", "request": '{"gpus": 2}'}

    answer = site.post(url(DraftProfile, "change", profile.pk), data, follow=True)

    assert "is not a known resource key" in answer.content.decode()
    profile.refresh_from_db()
    assert profile.description == ""


def test_a_deleted_draft_pool_stays_live_until_it_is_provisioned(
    site: Client, example: Example
) -> None:
    pool = DraftPool.objects.get(name="Bare Metal Low END GPUs")

    site.post(url(DraftPool, "delete", pool.pk), {"post": "yes"})

    assert [p.name for p in draft_document().pools] == ["H100 Half a Superpod"]
    assert len(live_document().pools) == 2
    refused = site.get(reverse("admin:draft_validate")).content.decode()
    assert "Provisioning removes pool &#x27;Bare Metal Low END GPUs&#x27;" in refused


def test_provisioning_says_first_what_it_would_do_to_tasks(
    site: Client, example: Example, alice: User
) -> None:
    make_node(example.bare_metal, name="b1", gpus=4)
    enqueue(alice, example.dev_queue, 2)

    page = site.get(reverse("admin:draft_provision")).text
    page = re.sub(r"\s*(<[^>]*>)\s*", r"\1", " ".join(page.split()))
    DraftProfile.objects.filter(name="4xGPU").update(request={"gpu": "99"})
    wrong = site.get(reverse("admin:draft_provision")).text

    assert "Effect on current tasks" in page
    assert "<li>0 would start</li><li>0 would be preempted</li>" in page
    assert f"<li>1 would still wait: 1 of {example.dev_queue.name}, capacity</li>" in page
    # A draft with errors has no outcome.
    assert "Effect on current tasks" not in wrong


def test_provisioning_and_resetting_ask_first(site: Client, example: Example) -> None:
    site.post(url(DraftPool, "add"), pool_form(site, name="New pool"))
    shown = site.get(reverse("admin:draft_provision"))
    version = shown.context["version"]

    stale = site.post(reverse("admin:draft_provision"), {"version": version - 1, "note": "x"})
    done = site.post(reverse("admin:draft_provision"), {"version": version, "note": "One more."})

    assert "pool New pool added" in shown.content.decode()
    assert stale.status_code == 200
    assert done.status_code == 302
    assert Revision.objects.latest("number").note == "One more."
    assert live_document().pools[-1].name == "New pool"
    site.post(url(DraftPool, "delete", DraftPool.objects.get(name="New pool").pk), {"post": "yes"})
    site.post(reverse("admin:draft_reset"), {"version": DraftState.objects.get().version})
    assert draft_document().pools[-1].name == "New pool"


def test_a_policy_with_amounts_makes_one_revision(site: Client, example: Example) -> None:
    revisions = Revision.objects.count()
    data = policy_form(site, name="New") | {
        "amounts-TOTAL_FORMS": "1",
        "amounts-0-key": "gpu",
        "amounts-0-reserved_text": "1/7",
        "amounts-0-limit_text": "4.0",
    }

    answer = site.post(url(Policy, "add"), data)

    assert answer.status_code == 302
    assert Revision.objects.count() == revisions + 1
    amount = Policy.objects.get(name="New").amounts.get()
    assert (amount.reserved_milli, amount.reserved_text) == (142, "1/7")
    assert (amount.limit_milli, amount.limit_text) == (4000, "4")


def test_who_may_exceed_a_limit_is_set_with_the_policy(
    site: Client, example: Example, alice: User, bob: User
) -> None:
    address = url(Policy, "change", example.dev.pk)
    added = form_of(site, address) | {
        "policyuserpermission_set-TOTAL_FORMS": "2",
        "policyuserpermission_set-0-user": alice.pk,
        "policyuserpermission_set-1-user": bob.pk,
        "policygrouppermission_set-TOTAL_FORMS": "1",
        "policygrouppermission_set-0-group": example.research.group.pk,
    }
    assert site.post(address, added).status_code == 302
    removed = form_of(site, address) | {"policyuserpermission_set-1-DELETE": "on"}
    assert site.post(address, removed).status_code == 302

    users, groups = limit_exceeders(example.dev)

    assert (list(users), list(groups)) == ([alice], [example.research.group])
    assert site.post(address, form_of(site, address)).status_code == 302
    assert Event.objects.filter(kind="policy.exceeders").count() == 2


def test_a_reservation_above_the_limit_is_reported_at_its_field(
    site: Client, example: Example
) -> None:
    address = url(Policy, "change", example.dev.pk)
    data = form_of(site, address) | {"amounts-0-reserved_text": "17"}

    answer = site.post(address, data)

    errors = answer.context["inline_admin_formsets"][0].formset.errors
    assert errors[0]["reserved_text"] == ["The reservation is above the limit."]


def test_a_removed_policy_leaves_the_lists_and_its_queues_close(
    site: Client, example: Example
) -> None:
    site.post(url(Policy, "delete", example.dev.pk), {"post": "yes"})

    example.dev.refresh_from_db()
    assert example.dev.is_removed
    assert not DraftQueueRank.objects.filter(queue=example.dev_queue).exists()
    assert site.get(url(Policy, "change", example.dev.pk)).status_code == 302


def test_a_queue_is_renamed_and_moved(site: Client, example: Example) -> None:
    address = url(Queue, "change", example.research_queue.pk)

    site.post(address, form_of(site, address) | {"name": "research-large"})
    site.post(
        url(Queue, "changelist"),
        {"action": "move_up", "_selected_action": [example.research_queue.pk]},
    )

    assert live_document().profiles[0].queues == ("research-large", "dev-4xgpu")


@pytest.mark.parametrize("given", ["", "null"])
@pytest.mark.parametrize("model", [DraftPool, DraftProfile, Node])
def test_an_emptied_box_is_as_if_nobody_had_filled_it(
    site: Client, example: Example, model: Any, given: str
) -> None:
    row = make_node(example.h100, name="h1") if model is Node else model.objects.earliest("pk")
    address = url(model, "change", row.pk)
    boxes = [
        one
        for one in model._meta.fields
        if isinstance(one, JSONField) and one.name in form_of(site, address)
    ]

    for box in boxes:
        answer = site.post(address, form_of(site, address) | {box.name: given}, follow=True)
        assert answer.status_code == 200, box
        is_refused = answer.redirect_chain == [(address, 302)]
        row.refresh_from_db()
        assert is_refused or getattr(row, box.name) == box.get_default(), box

    assert boxes
