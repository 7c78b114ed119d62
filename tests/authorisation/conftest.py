"""One world for all tests of a module: nothing that is asked changes it."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from tests.authorisation.asking import Asker, asker_for
from tests.authorisation.world import world_make


@pytest.fixture(scope="module")
def asker(django_db_setup: None, django_db_blocker: Any) -> Iterator[Asker]:
    """Everybody signed in, and just now, to a world that vanishes with the module."""
    # However long a machine takes to ask, nobody has to say again who they are meanwhile.
    asked_again = override_settings(ACCOUNT_REAUTHENTICATION_TIMEOUT=86_400)
    with asked_again, django_db_blocker.unblock(), transaction.atomic():
        yield asker_for(world_make())
        transaction.set_rollback(True)
