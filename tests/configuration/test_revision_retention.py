"""The newest revisions of each author are kept."""

import pytest

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.services.policies import policy_change
from apps.configuration.services.revision_retention import revisions_remove_old
from apps.dashboard.selectors.revisions import revision_page
from apps.policies.models import DraftState
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db


def test_who_makes_many_revisions_removes_none_of_the_others(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    roots = set(Revision.objects.values_list("number", flat=True))
    for weight in range(2, 7):
        policy_change(actor=acme.admin, policy=acme.team, changes={"weight": weight})
    newest = Revision.objects.order_by("-number")[:2].values_list("number", flat=True)
    kept = {*roots, *newest}

    removed = revisions_remove_old(most=len(roots)), revisions_remove_old(most=2)

    assert removed[0] == 0
    left = set(Revision.objects.values_list("number", flat=True))
    base = DraftState.objects.get().base_revision
    assert left == {*sorted(roots)[-2:], base, *newest} <= kept
    assert revisions_remove_old(most=2) == 0
    assert revisions_remove_old(most=0) == 0
    # The first that is left of adam's follows no row that is there.
    rows = {row.revision.number: row.changes for row in revision_page(root, before=None).rows}
    assert rows[min(newest)] is None
    assert rows[max(newest)]


def test_one_run_removes_a_bounded_number(
    root: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.configuration.services.revision_retention.AT_ONCE", 2)
    for weight in range(2, 6):
        policy_change(actor=root, policy=example.dev, changes={"weight": weight})

    # All but the newest and the one that the draft came from.
    gone = [revisions_remove_old(most=1) for _ in range(10)]

    assert gone[:2] == [2, 2]
    assert max(gone) == 2
    assert gone[-1] == 0
    assert Revision.objects.count() == 2
