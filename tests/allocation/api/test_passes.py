"""Passes over REST: for administrators, with the snapshot as a scenario file."""

from collections.abc import Callable

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.models import PassRecord
from apps.allocation.scenarios import read_scenario
from apps.allocation.services import run_pass
from tests.allocation.state import enqueue, make_node
from tests.people import Example

ApiAs = Callable[[User], APIClient]


@pytest.fixture
def decided(example: Example, alice: User) -> PassRecord:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 3)
    run_pass()
    return PassRecord.objects.get()


def test_an_administrator_reads_what_passes_decided(
    decided: PassRecord, api_as: ApiAs, root: User
) -> None:
    answer = api_as(root).get("/api/v1/passes/")

    assert answer.status_code == 200
    (row,) = answer.json()["results"]
    assert (row["id"], row["placed"], row["skipped"]) == (decided.pk, 2, 0)
    assert len(row["decisions"]["placed"]) == 2


def test_the_snapshot_comes_as_a_file_that_can_be_read_back(
    decided: PassRecord, api_as: ApiAs, root: User
) -> None:
    answer = api_as(root).get(f"/api/v1/passes/{decided.pk}/snapshot/")

    assert answer["Content-Disposition"] == f'attachment; filename="pass-{decided.pk}.json"'
    snapshot = read_scenario(answer.content.decode()).snapshot
    assert sum(len(run.heads) for run in snapshot.queued_groups) == 2


def test_a_snapshot_that_is_not_kept_any_more_is_not_found(
    db: None, api_as: ApiAs, root: User
) -> None:
    old = PassRecord.objects.create(at=timezone.now(), duration_ms=1)

    answer = api_as(root).get(f"/api/v1/passes/{old.pk}/snapshot/")

    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


@pytest.mark.parametrize("path", ["", "{id}/", "{id}/snapshot/"])
def test_nobody_else_sees_passes(
    decided: PassRecord, api_as: ApiAs, alice: User, charlie: User, path: str
) -> None:
    address = f"/api/v1/passes/{path.format(id=decided.pk)}"

    assert api_as(alice).get(address).status_code == 403
    assert api_as(charlie).get(address).status_code == 403
    assert APIClient().get(address).status_code in {401, 403}
