"""One world for all tests of a module: no request changes it."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from tests.authorisation.marks import numbers_kept
from tests.authorisation.requester import Requester, requester_for
from tests.authorisation.world import world_make


@pytest.fixture(scope="module")
def requester(django_db_setup: None, django_db_blocker: Any) -> Iterator[Requester]:
    """Everybody signed in just now, to a world that is dropped with the module."""
    # However slow the machine is, no request needs a new authentication.
    asked_again = override_settings(ACCOUNT_REAUTHENTICATION_TIMEOUT=86_400)
    with asked_again, django_db_blocker.unblock(), numbers_kept(), transaction.atomic():
        yield requester_for(world_make())
        transaction.set_rollback(True)
