"""What somebody may not see is not told in other ways either.

No value that they may try, as a filter, an order, a search or a field of a body, answers otherwise
than one that there is not; and nothing that others have changes a number, an order or a sentence.
"""

import pytest

from tests.authorisation.asking import Asker
from tests.authorisation.more import changes
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
def test_what_one_may_not_see_is_no_value(asker: Asker, role: Role) -> None:
    assert list(value_findings(asker, role)) == []


@pytest.mark.parametrize("role", [TEAM_A, OTHER_TENANT], ids=str)
def test_what_others_have_changes_no_answer(asker: Asker, role: Role) -> None:
    assert list(changes(asker, role)) == []
