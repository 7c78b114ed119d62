"""The worked example, made once for all tests of a module: each gets copies, and is rolled back.

It takes as long to make as most tests that use it. The tests of a module that ask for `example`
come last, and share it where no test of the module commits: other threads and processes see
nothing of a transaction.
"""

from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from apps.accounts.models import User
from tests.people import Example, example_make, root_make

COMMITTING = frozenset({"transactional_db", "live_server", "django_db_serialized_rollback"})
_is_shared = pytest.StashKey[bool]()


@dataclass(frozen=True)
class SharedExample:
    """Rows of a module; a test gets copies, since it may change them."""

    root: User
    dev_group: Group
    research_group: Group
    example: Example


def share_examples(items: list[pytest.Item]) -> None:
    """Let the tests that ask for the example share it, after the others of their module."""
    modules: dict[Path, list[Any]] = defaultdict(list)
    for item in items:
        modules[item.path].append(item)
    for tests in modules.values():
        tests.sort(key=_asks)
        if not any(map(_commits, tests)):
            for item in filter(_asks, tests):
                item.stash[_is_shared] = True
                # Before the transaction of the test, in which it would be rolled back. Tests of
                # one function have one list.
                if shared_example.__name__ not in item.fixturenames:
                    item.fixturenames.insert(0, shared_example.__name__)
    items[:] = [item for tests in modules.values() for item in tests]


def _asks(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    # The last one counts, and those that it builds on: a module may have an example of its own.
    for one in reversed(item._fixtureinfo.name2fixturedefs.get("example", ())):
        if one.func.__module__ == __name__:
            return True
        if "example" not in one.argnames:
            return False
    return False


def _commits(item: pytest.Item) -> bool:
    marks = item.iter_markers("django_db")
    fixtures = getattr(item, "fixturenames", ())
    return bool(COMMITTING.intersection(fixtures)) or any(
        one.kwargs.get("transaction") for one in marks
    )


@pytest.fixture(scope="module")
def shared_example(django_db_setup: None, django_db_blocker: Any) -> Iterator[SharedExample]:
    with django_db_blocker.unblock(), transaction.atomic():
        yield _make()
        transaction.set_rollback(True)


@pytest.fixture
def own_example(request: pytest.FixtureRequest, db: None) -> SharedExample | None:
    """Copies of the module's rows; None where each test makes what it asks for."""
    if not request.node.stash.get(_is_shared, False):
        return None
    shared: SharedExample = request.getfixturevalue(shared_example.__name__)
    return deepcopy(shared)


@pytest.fixture
def root(own_example: SharedExample | None) -> User:
    return own_example.root if own_example else root_make()


@pytest.fixture
def dev_group(own_example: SharedExample | None) -> Group:
    return own_example.dev_group if own_example else Group.objects.create(name="dev")


@pytest.fixture
def research_group(own_example: SharedExample | None) -> Group:
    return own_example.research_group if own_example else Group.objects.create(name="research")


@pytest.fixture
def example(
    own_example: SharedExample | None, root: User, dev_group: Group, research_group: Group
) -> Example:
    return own_example.example if own_example else example_make(root, dev_group, research_group)


def _make() -> SharedExample:
    root = root_make()
    dev, research = (Group.objects.create(name=name) for name in ("dev", "research"))
    return SharedExample(root, dev, research, example_make(root, dev, research))
