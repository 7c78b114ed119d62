"""What a user may not see does not leak in other ways either.

A hidden value, as a filter, an order, a search or a field of a body, is answered like an unknown
one; and objects of others change no number, order or sentence.
"""

import pytest

from tests.authorisation.interference import changes
from tests.authorisation.requester import Requester
from tests.authorisation.roles import OTHER_TENANT, TEAM_A, TENANT_ADMIN, Role
from tests.authorisation.values import blanks, value_findings

pytestmark = pytest.mark.django_db


def test_every_filter_and_field_of_rest_is_tried() -> None:
    found = {(blank.surface.address, blank.name) for blank in blanks()}

    assert ("/api/v1/tasks/", "owner") in found
    assert ("/api/v1/tasks/", "queue") in found
    assert ("/api/v1/vaults/", "group") in found
    assert len(found) > 100


@pytest.mark.parametrize("role", [TEAM_A, OTHER_TENANT, TENANT_ADMIN], ids=str)
def test_what_one_may_not_see_is_no_value(requester: Requester, role: Role) -> None:
    assert list(value_findings(requester, role)) == []


@pytest.mark.parametrize("role", [TEAM_A, OTHER_TENANT], ids=str)
def test_what_others_have_changes_no_answer(requester: Requester, role: Role) -> None:
    assert list(changes(requester, role)) == []
