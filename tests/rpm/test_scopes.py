"""No endpoint forgets to ask what a credential is for."""

from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.settings import api_settings
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from apps.accounts.api.permissions import HasScope
from apps.accounts.api.throttling import CredentialThrottle
from apps.accounts.models import Scope, User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.service_accounts import service_account_create
from tests.accounts.test_throttling import basic
from tests.allocation.state import enqueue
from tests.people import Example

View = Callable[..., Any]
# It says that there is no such address.
OPEN = ("api/v1/",)
# What a credential that only reads, or only enqueues, may change although it changes things.
WITH_READ = {"TokenView"}
WITH_ENQUEUE = WITH_READ | {"TaskViewSet", "bulk_actions", "check", "dependencies"}

# Where a service account may act for the owner of a task; everywhere else it may not.
WITH_ACTING = WITH_ENQUEUE - WITH_READ | {
    "PoolViewSet",
    "ProfileViewSet",
    "QueueViewSet",
    "explain",
}


def views(place: Any = None, prefix: str = "") -> Iterator[tuple[str, View, type[APIView]]]:
    """Every view of REST with its address."""
    for entry in (place or get_resolver()).url_patterns:
        address = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from views(entry, address)
        elif isinstance(entry, URLPattern):
            known = getattr(entry.callback, "cls", None)
            known = known or getattr(entry.callback, "view_class", None)
            if isinstance(known, type) and issubclass(known, APIView):
                yield address, entry.callback, known


VIEWS = sorted((one for one in views() if one[0] not in OPEN), key=lambda one: one[0])


def test_every_view_asks_for_the_scope_and_counts() -> None:
    assert len(VIEWS) > 60
    assert list(api_settings.DEFAULT_PERMISSION_CLASSES) == list[Any]([HasScope])
    for address, _, view in VIEWS:
        asked: list[Any] = list(view.permission_classes)
        assert any(issubclass(one, HasScope) for one in asked), address
        assert view.throttle_classes == [CredentialThrottle], address


@pytest.mark.django_db
@pytest.mark.parametrize("scope", [Scope.READ, Scope.ENQUEUE])
def test_nothing_else_is_done_with_a_smaller_credential(root: User, scope: Scope) -> None:
    credential, secret = credential_create(user=root, label="", scope=scope)
    headers = basic(credential.key, secret)
    free = WITH_READ if scope is Scope.READ else WITH_ENQUEUE
    done = []

    for address, callback, view in VIEWS:
        if view.__name__ in free:
            continue
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            request = APIRequestFactory().generic(
                method, "/", "{}", content_type="application/json", headers=headers
            )
            answer = callback(request, pk="1", credential_pk="1")
            if (answer.status_code, answer.data["code"]) != (403, "scope"):
                done.append((method, address, answer.status_code))

    assert done == []


def test_acting_for_an_owner_is_allowed_where_it_is_named_only() -> None:
    allowed = {view.__name__ for _, _, view in VIEWS if getattr(view, "allows_acting", False)}

    assert allowed == WITH_ACTING


@pytest.mark.django_db
def test_every_other_view_refuses_to_act_for_an_owner(
    root: User, alice: User, example: Example
) -> None:
    made = service_account_create(
        actor=root,
        name="robot",
        groups=["dev"],
        can_act_for_owners=True,
        scope=Scope.ADMINISTER,
    )
    (task,) = enqueue(alice, example.dev_queue)
    headers = {**basic(made.credential.key, made.secret), "X-RPM-Act-For": str(task.pk)}
    done = []

    for address, callback, view in VIEWS:
        if view.__name__ in WITH_ACTING | {"TokenView"}:
            continue
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            request = APIRequestFactory().generic(
                method, "/", "{}", content_type="application/json", headers=headers
            )
            # The user it acts for is kept until the next request; here there is none.
            answer = copy_context().run(callback, request, pk="1", credential_pk="1")
            if answer.status_code != 405 and "X-RPM-Act-For" not in answer.data.get("fields", {}):
                done.append((method, address, answer.status_code))

    assert done == []
