"""The worked example, made once for all tests of a module: each gets copies, and is rolled back.

A folder in which nearly every test asks for `example` imports these fixtures into its conftest.
They are for tests that share no database with other threads or processes: what they see is never
committed.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from apps.accounts.models import User
from tests.people import Example, example_make, root_make


@dataclass(frozen=True)
class SharedExample:
    """Rows of a module; a test gets copies, since it may change them."""

    root: User
    dev_group: Group
    research_group: Group
    example: Example


@pytest.fixture(scope="module", autouse=True)
def shared_example(django_db_setup: None, django_db_blocker: Any) -> Iterator[SharedExample]:
    """For every test of the module, so that none depends on which one ran before."""
    with django_db_blocker.unblock(), transaction.atomic():
        root = root_make()
        dev, research = (Group.objects.create(name=name) for name in ("dev", "research"))
        yield SharedExample(root, dev, research, example_make(root, dev, research))
        transaction.set_rollback(True)


@pytest.fixture
def own_example(db: None, shared_example: SharedExample) -> SharedExample:
    return deepcopy(shared_example)


@pytest.fixture
def root(own_example: SharedExample) -> User:
    return own_example.root


@pytest.fixture
def dev_group(own_example: SharedExample) -> Group:
    return own_example.dev_group


@pytest.fixture
def research_group(own_example: SharedExample) -> Group:
    return own_example.research_group


@pytest.fixture
def example(own_example: SharedExample) -> Example:
    return own_example.example
