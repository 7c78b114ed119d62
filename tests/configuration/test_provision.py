"""Draft and live: written, provisioned, reset, restored."""

from collections.abc import Iterable
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import (
    draft_changes,
    draft_document,
    live_document,
    revision_document,
)
from apps.configuration.services import change_records
from apps.configuration.services.drafts import draft_reset, draft_write
from apps.configuration.services.policies import policy_change, policy_remove
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queue_closure import queues_close
from apps.configuration.services.queues import queue_change
from apps.configuration.services.revisions import revision_restore
from apps.core.errors import BadInput, Conflict, Stale
from apps.events.models import Event
from apps.policies.document import Document, as_data, parse
from apps.policies.models import (
    DraftState,
    LiveState,
    Pool,
    PoolLink,
    Profile,
    Queue,
)
from tests.people import EXAMPLE, Example
from tests.policies.documents import documents

pytestmark = pytest.mark.django_db

# The database is rolled back after every example, so they are independent of one another.
shared_database = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def data_without_policies(document: Document) -> dict[str, Any]:
    data = as_data(document)
    data.pop("policies", None)
    return data


def write(actor: User, changes: dict[str, Any]) -> None:
    """Save the live document with some entries replaced."""
    data = data_without_policies(live_document()) | changes
    draft_write(document=parse(data), actor=actor)


def pools_of_live() -> list[dict[str, Any]]:
    pools: list[dict[str, Any]] = as_data(live_document())["pools"]
    return pools


def test_provisioning_the_worked_example_keeps_all_four_orders(example: Example) -> None:
    document = live_document()

    assert [pool.name for pool in document.pools] == [
        "H100 Half a Superpod",
        "Bare Metal Low END GPUs",
    ]
    assert document.pools[0].profiles == ("2xGPU", "4xGPU", "8xGPU", "0.5xGPU")
    assert [link.name for link in document.profiles[0].pools] == [
        "4 GPU Low End",
        "4 GPU H100 link",
    ]
    assert document.profiles[0].queues == ("dev-4xgpu", "research-4xgpu")
    assert document.profiles[3].request == {"gpu": "0.5"}
    assert draft_changes() == []


def test_provisioning_again_keeps_the_ids(root: User, example: Example) -> None:
    ids = dict(Pool.objects.values_list("name", "pk"))
    links = set(PoolLink.objects.values_list("pk", flat=True))
    pools = pools_of_live()
    pools[0]["name"], pools[1]["name"] = pools[1]["name"], pools[0]["name"]
    pools[0]["profiles"] = pools[1]["profiles"] = []
    profiles = as_data(live_document())["profiles"]
    other = {pools[0]["name"]: pools[1]["name"], pools[1]["name"]: pools[0]["name"]}
    for profile in profiles:
        for link in profile["pools"]:
            link["pool"] = other[link["pool"]]

    write(root, {"pools": pools, "profiles": profiles})
    document_provision(actor=root)

    assert dict(Pool.objects.values_list("name", "pk")) == {
        other[name]: pk for name, pk in ids.items()
    }
    assert set(PoolLink.objects.values_list("pk", flat=True)) == links


def test_a_removed_profile_closes_its_queues_and_frees_its_name(
    root: User, example: Example
) -> None:
    profiles = [p for p in as_data(live_document())["profiles"] if p["name"] != "4xGPU"]
    pools = [p | {"profiles": []} for p in pools_of_live()]
    write(root, {"pools": pools, "profiles": profiles})

    document_provision(actor=root, note="Nobody needs four.")

    example.profile.refresh_from_db()
    assert example.profile.is_removed
    assert not Queue.objects.filter(removed_at__isnull=True).exists()
    assert Event.objects.filter(kind="queue.closed").count() == 2
    write(
        root,
        {
            "profiles": [
                *profiles,
                {"name": "4xGPU", "request": 4, "pools": [{"pool": "H100 Half a Superpod"}]},
            ]
        },
    )
    document_provision(actor=root)
    assert Profile.objects.get(name="4xGPU", removed_at__isnull=True).pk != example.profile.pk


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        pytest.param({"request": {"gpu": 16}}, "profiles[0].request.gpu", id="above every pool"),
        pytest.param({"pools": [], "queues": []}, "profiles[0].pools", id="unlinked"),
        pytest.param({"request": {}}, "profiles[0].request", id="asks for nothing"),
    ],
)
def test_a_draft_with_errors_is_not_provisioned(
    root: User, example: Example, changes: dict[str, Any], path: str
) -> None:
    before = live_document()
    profiles = as_data(before)["profiles"]
    profiles[0] |= changes
    write(root, {"profiles": profiles, "pools": [p | {"profiles": []} for p in pools_of_live()]})

    with pytest.raises(Conflict) as refused, transaction.atomic():
        document_provision(actor=root)

    assert path in refused.value.fields
    assert live_document() == before


def test_two_links_with_one_name_are_an_error(root: User, example: Example) -> None:
    profiles = as_data(live_document())["profiles"]
    profiles[0]["pools"][1]["name"] = "4 gpu low end"
    write(root, {"profiles": profiles})

    with pytest.raises(Conflict) as refused, transaction.atomic():
        document_provision(actor=root)

    assert list(refused.value.fields) == ["profiles[0].pools[1].name"]


def test_a_dedicated_pool_lets_nobody_else_in(root: User, example: Example) -> None:
    pools = pools_of_live()
    pools[0]["dedicated_to"] = "dev"
    write(root, {"pools": pools})

    with pytest.raises(Conflict) as refused, transaction.atomic():
        document_provision(actor=root)

    assert "research-4xgpu" in refused.value.fields["pools[0].dedicated_to"]


def test_a_policy_that_is_not_there_cannot_own_a_pool(root: User, example: Example) -> None:
    pools = pools_of_live()
    pools[1]["dedicated_to"] = "Nobody"

    with pytest.raises(BadInput) as refused, transaction.atomic():
        write(root, {"pools": pools})

    assert list(refused.value.fields) == ["pools[1].dedicated_to"]


def test_a_stale_version_learns_who_changed_what(root: User, example: Example) -> None:
    version = DraftState.objects.get().version
    pools = pools_of_live()
    pools[0]["backfill"] = False
    write(root, {"pools": pools})

    with pytest.raises(Stale) as refused, transaction.atomic():
        draft_write(document=parse(EXAMPLE), actor=root, version=version)

    assert "root changed pool H100 Half a Superpod: backfill changed." in refused.value.detail


def test_provisioning_counts_the_version_up_and_keeps_a_revision(
    root: User, example: Example
) -> None:
    version = LiveState.objects.get().version

    revision = document_provision(actor=root, note="Again.")

    assert LiveState.objects.get().version > version
    assert revision.note == "Again."
    assert revision_document(Revision.objects.latest("number")) == live_document()
    assert DraftState.objects.get().base_revision == revision.number


def test_numbers_of_revisions_have_no_gaps(root: User, example: Example) -> None:
    numbers = list(Revision.objects.order_by("number").values_list("number", flat=True))

    assert numbers == list(range(1, len(numbers) + 1))


def test_restoring_says_what_is_gone(root: User, example: Example) -> None:
    revision = Revision.objects.latest("number")
    queues_close(queues=[example.dev_queue], actor=root, reason="Gone.")

    _, notes = revision_restore(revision=revision, actor=root)

    assert notes == ["Profile '4xGPU' had the queues dev-4xgpu, now gone."]
    assert draft_document().profiles[0].queues == ("research-4xgpu",)


def test_restoring_knows_what_got_another_name(root: User, example: Example) -> None:
    pools = pools_of_live()
    pools[0]["dedicated_to"] = "Dev"
    only_dev = as_data(live_document())["profiles"]
    queues_close(queues=[example.research_queue], actor=root, reason="Not there.")
    write(root, {"pools": pools, "profiles": [{**one, "queues": []} for one in only_dev]})
    revision = document_provision(actor=root)
    policy_change(actor=root, policy=example.dev, changes={"name": "Robots"})
    policy_change(actor=root, policy=example.research, changes={"name": "Dev"})
    queue_change(actor=root, queue=example.dev_queue, changes={"name": "robots-4xgpu"})

    _, notes = revision_restore(revision=revision, actor=root)

    assert notes == []
    assert draft_document().pools[0].dedicated_to == "Robots"
    assert draft_document().profiles[0].queues == ("robots-4xgpu",)


def test_a_policy_that_the_draft_dedicates_a_pool_to_is_not_removed(
    root: User, example: Example
) -> None:
    pools = pools_of_live()
    pools[0]["dedicated_to"] = "Dev"
    write(root, {"pools": pools})

    with pytest.raises(Conflict, match="dedicated to it in the draft"):
        policy_remove(actor=root, policy=example.dev)

    assert draft_document().pools[0].dedicated_to == "Dev"


@shared_database
@given(raw=documents())
def test_what_is_provisioned_is_what_the_draft_said(root: User, raw: dict[str, Any]) -> None:
    with transaction.atomic():
        draft_write(document=parse(raw), actor=root)
        draft = draft_document()
        document_provision(actor=root)
        live = live_document()
        draft_reset(actor=root)
        after_reset = draft_document()
        transaction.set_rollback(True)

    assert data_without_policies(live) == as_data(draft)
    assert after_reset == draft


@shared_database
@given(first=documents(), second=documents())
def test_a_restored_revision_is_its_document_with_the_same_rows(
    root: User, first: dict[str, Any], second: dict[str, Any]
) -> None:
    with transaction.atomic():
        draft_write(document=parse(first), actor=root)
        revision = document_provision(actor=root)
        live = live_document()
        ids = set(Pool.objects.filter(removed_at__isnull=True).values_list("pk", flat=True))
        draft_write(document=parse(second), actor=root)
        document_provision(actor=root)
        revision_restore(revision=revision, actor=root)
        document_provision(actor=root)
        again = live_document()
        ids_again = set(Pool.objects.filter(removed_at__isnull=True).values_list("pk", flat=True))
        transaction.set_rollback(True)

    assert again == live
    assert ids_again == ids


@shared_database
@given(raw=documents(), saved=st.lists(documents(), min_size=1, max_size=3))
def test_reset_throws_saved_changes_away(
    root: User, raw: dict[str, Any], saved: list[dict[str, Any]]
) -> None:
    with transaction.atomic():
        draft_write(document=parse(raw), actor=root)
        document_provision(actor=root)
        for other in saved:
            draft_write(document=parse(other), actor=root)
        draft_reset(actor=root)
        changes = draft_changes()
        transaction.set_rollback(True)

    assert changes == []


def test_provisioning_tells_the_pages_of_pools_policies_and_queues(
    root: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified: list[str] = []

    def listen(*, notify: object = (), topics: Iterable[str] = ()) -> None:  # as the real one
        notified.extend(topics)

    monkeypatch.setattr(change_records, "after_commit", listen)

    document_provision(actor=root)

    want = {
        f"pool.{example.h100.pk}",
        f"policy.{example.dev.pk}",
        f"queue.{example.dev_queue.pk}",
    }
    assert want <= set(notified)
