"""What an entry of the audit log contains, and what it never does."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services.people import user_create
from apps.core.keyring import HIDDEN
from apps.core.origin import acts_for, origin_of_command
from apps.core.recorders import event_record as event_record_of_core
from apps.events.models import AuditEntry, Event
from apps.events.sanitize import SECRET_NAMES, sanitize
from apps.events.services import NewEvent, event_record, events_record
from apps.events.services.seals import audit_seal
from tests.people import Example
from tests.services.timeouts import scale_timeout


@pytest.mark.django_db
def test_what_the_system_does_by_itself_is_not_audited() -> None:
    event_record("node.healthy", actor=None, object_type="node", object_id=1)

    assert Event.objects.count() == 1
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db
def test_the_command_line_is_audited_with_the_account_of_the_machine() -> None:
    def add() -> None:
        origin_of_command("node add")
        event_record_of_core("node.added", actor=None, object_type="node", object_id=1)

    copy_context().run(add)

    entry = AuditEntry.objects.get()
    assert entry.via == "command line"
    assert entry.actor
    assert entry.details == {"command": "node add"}


@pytest.mark.django_db
def test_only_what_differs_is_kept_of_a_change(root: User) -> None:
    before = {"name": "Dev", "weight": 1, "limit": {"gpu": "4"}}
    after = {"name": "Dev", "weight": 2, "limit": {"gpu": "4"}}

    event_record(
        "policy.changed",
        actor=root,
        object_type="policy",
        object_id=1,
        data={"name": "Dev", "before": before, "after": after},
    )

    entry = AuditEntry.objects.get()
    assert (entry.before, entry.after, entry.object_name) == ({"weight": 1}, {"weight": 2}, "Dev")


@pytest.mark.django_db
@pytest.mark.parametrize("name", SECRET_NAMES)
def test_no_secret_is_kept_whatever_a_service_says(root: User, name: str) -> None:
    data = {
        "before": {name: "hunter2"},
        "after": {f"new_{name}": "hunter2", "rows": [{name: ["hunter2"]}]},
        name: {"deep": {"er": "hunter2"}},
    }

    event_record("x.changed", actor=root, object_type="x", object_id=1, data=data)

    kept = [str(row) for row in AuditEntry.objects.values()] + [str(Event.objects.get().data)]
    assert not any("hunter2" in one for one in kept)
    assert AuditEntry.objects.get().before == {name: HIDDEN}


def test_that_there_is_a_secret_may_be_recorded() -> None:
    assert sanitize({"has_new_password": True, "password": ""}) == {
        "has_new_password": True,
        "password": "",
    }


def test_whatever_is_recorded_can_be_stored() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless

    sanitized = sanitize({"a\0b": "c\0d", "half": "\ud800", "long": "x" * 9000, "endless": endless})

    assert sanitized["ab"] == "cd"
    assert sanitized["half"] == "?"
    assert len(sanitized["long"]) == 4000


@pytest.mark.django_db
def test_both_are_named_where_a_service_account_acts(alice: User) -> None:
    service = user_create(username="ci", password=None)
    entry = NewEvent(kind="task.queued", object_type="task", object_id="t", actor_id=alice.pk)

    def act() -> None:
        acts_for(alice.pk, service_id=service.pk)
        events_record([entry])

    copy_context().run(act)

    kept = AuditEntry.objects.get()
    assert (kept.actor, kept.acted_by) == ("alice", "ci")
    assert Event.objects.get().acted_by_id == service.pk


@pytest.mark.django_db
def test_a_request_is_named_with_its_id_and_address(
    api_as: Callable[[User], APIClient], root: User, example: Example
) -> None:
    answer = api_as(root).post(
        f"/api/v1/queues/{example.dev_queue.pk}/pause/",
        {"reason": "maintenance"},
        HTTP_X_REQUEST_ID="my-request-1",
        REMOTE_ADDR="192.0.2.7",
    )

    entry = AuditEntry.objects.get(verb="queue.paused")
    assert answer.status_code == 200
    assert (entry.actor, entry.via, entry.address) == ("root", "rest", "192.0.2.7")
    assert (entry.request_id, entry.reason) == ("my-request-1", "maintenance")


@pytest.mark.django_db
def test_log_ins_are_kept_the_good_and_the_refused() -> None:
    user_create(username="dana", password="correct horse battery")
    client = Client()
    for name, password in (
        ("dana", "wrong"),
        ("correct horse battery", ""),
        ("nobody", "wrong"),
        ("dana", "correct horse battery"),
    ):
        client.post("/sign-in/", {"username": name, "password": password})
    client.post("/sign-out/")

    kept = AuditEntry.objects.order_by("id").values_list("verb", "object_name")
    assert list(kept) == [
        ("session.refused", "dana"),
        ("session.refused", "no such account"),
        ("session.signed_in", "dana"),
        ("session.signed_out", "dana"),
    ]
    assert "battery" not in str(list(AuditEntry.objects.values()))


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres_only
def test_writers_wait_for_no_sealer_and_sealers_for_no_writer(root: User) -> None:
    def record() -> None:
        event_record("q.x", actor=root, object_type="q", object_id=1)

    record()
    with transaction.atomic():
        # Not committed while others seal and write.
        record()
        others = [threading.Thread(target=_alone, args=(one,)) for one in (audit_seal, record)]
        for other in others:
            other.start()
        for other in others:
            other.join(timeout=scale_timeout(20))
        assert not any(other.is_alive() for other in others)
        assert AuditEntry.objects.filter(position=1).exists()

    audit_seal()

    positions = AuditEntry.objects.order_by("position").values_list("position", flat=True)
    assert list(positions) == [1, 2, 3]


def _alone(work: Callable[[], object]) -> None:
    try:
        work()
    finally:
        connection.close()
