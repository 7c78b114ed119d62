"""The fast path answers as the standard path does, and checks everything that it caches."""

import base64
import json
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone
from pytest_django import Settings

from apps.accounts.models import Credential, User
from apps.configuration.services.policies import policy_set_amounts
from apps.core.headers import common_response_headers
from apps.nodes.models import Volume
from apps.nodes.services import volume_create
from apps.policies.models import LiveState, PolicyGroupPermission, Profile, Queue
from apps.tasks.models import Task
from apps.tasks.services.enqueue.fast_path import fast_path_cache
from tests.people import Example
from tests.tasks.api.conftest import Send, basic
from tests.tasks.api.test_tasks import BAD, wanted

pytestmark = pytest.mark.django_db


# What an answer says for its own content, or because Django read a cookie or a language.
OWN = {
    "X-Request-ID",
    "ETag",
    "Content-Length",
    "Content-Type",
    "Vary",
    "Allow",
    "Content-Language",
}


@pytest.mark.parametrize("is_secure", [False, True])
def test_both_paths_answer_with_the_same_headers(
    send: Send, header: str, example: Example, settings: Settings, *, is_secure: bool
) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_HSTS_SECONDS = 3600
    common_response_headers.cache_clear()
    proto = {"HTTP_X_FORWARDED_PROTO": "https" if is_secure else "http"}

    standard = send(header, wanted(example), fast=False, **proto)
    fast = send(header, wanted(example), **proto)

    common_response_headers.cache_clear()
    shown = [{k: v for k, v in one.headers.items() if k not in OWN} for one in (standard, fast)]
    assert shown[0] == shown[1]
    assert ("Strict-Transport-Security" in shown[1]) == is_secure
    assert {"Content-Security-Policy", "X-Frame-Options", "Referrer-Policy"} <= set(shown[1])
    assert shown[1]["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(("body", "status", "field"), BAD)
def test_both_paths_refuse_the_same(
    send: Send, header: str, example: Example, body: Any, status: int, field: str
) -> None:
    send(header, wanted(example))
    Task.objects.all().delete()
    sent = wanted(example, **body) if isinstance(body, dict) else body

    replies = [send(header, sent, fast=fast) for fast in (True, False)]

    for reply in replies:
        assert (reply.status, field in reply.data["fields"]) == (status, True), reply.data
        reply.data.pop("request_id")
    assert replies[0].data == replies[1].data
    assert not Task.objects.exists()


def test_a_credential_for_reading_enqueues_nothing(
    warm: Send, alice: User, header: str, example: Example
) -> None:
    Credential.objects.update(scope="read")
    remembered = warm(header, wanted(example))
    fast_path_cache.clear()
    fresh = warm(header, wanted(example))

    for reply in (remembered, fresh):
        assert (reply.status, reply.data["code"], reply.is_fast) == (403, "scope", False)
    assert not Task.objects.exists()


def test_delegated_requests_take_the_standard_path(
    warm: Send, header: str, example: Example
) -> None:
    reply = warm(header, wanted(example), HTTP_X_RPM_ACT_FOR="nonsense")

    assert (reply.status, reply.is_fast) == (403, False)
    assert not Task.objects.exists()


@pytest.mark.usefixtures("one_long_minute")
def test_the_fast_path_counts_requests_too(
    warm: Send, header: str, example: Example, settings: Any
) -> None:
    settings.RPM_REQUESTS_PER_CREDENTIAL = 1

    reply = warm(header, wanted(example))

    assert (reply.status, reply.data["code"]) == (429, "throttled")
    assert int(reply.headers["Retry-After"]) > 0


@pytest.mark.usefixtures("one_long_minute")
def test_an_address_that_guessed_too_often_is_refused_on_the_fast_path(
    warm: Send, header: str, example: Example, settings: Any
) -> None:
    settings.RPM_WRONG_SECRETS_PER_ADDRESS = 1
    wrong = "Basic " + base64.b64encode(b"KEY:guess").decode()
    assert [warm(wrong, wanted(example)).status for _ in range(2)] == [401, 429]

    fast_path_cache.clear()

    assert warm(header, wanted(example)).status == 429


def test_a_revoked_credential_is_refused_at_once(warm: Send, header: str, example: Example) -> None:
    Credential.objects.update(revoked_at=timezone.now())

    assert warm(header, wanted(example)).status == 401
    assert not Task.objects.exists()


def test_an_expired_credential_is_refused_at_once(
    warm: Send, header: str, example: Example
) -> None:
    Credential.objects.update(expires_at=timezone.now())

    assert warm(header, wanted(example)).status == 401


def test_a_person_who_was_shut_out_is_refused_at_once(
    warm: Send, header: str, alice: User, example: Example
) -> None:
    User.objects.filter(pk=alice.pk).update(is_active=False)

    assert warm(header, wanted(example)).status == 401


def test_a_wrong_secret_is_refused_although_the_right_one_is_remembered(
    warm: Send, header: str, example: Example
) -> None:
    key = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")[0]
    wrong = "Basic " + base64.b64encode(f"{key}:guess".encode()).decode()

    assert warm(wrong, wanted(example)).status == 401


def test_a_permission_that_goes_is_gone_at_once(warm: Send, header: str, example: Example) -> None:
    PolicyGroupPermission.objects.filter(permission__codename="enqueue_policy").delete()
    assert warm(header, wanted(example)).status == 403

    PolicyGroupPermission.objects.all().delete()
    assert warm(header, wanted(example)).status == 404
    assert not Task.objects.exists()


def test_who_leaves_the_group_is_out_at_once(
    warm: Send, header: str, alice: User, example: Example
) -> None:
    alice.groups.remove(Group.objects.get(name="dev"))

    assert warm(header, wanted(example)).status == 404


def test_a_volume_is_refused_once_restricted(warm: Send, header: str, example: Example) -> None:
    Profile.objects.update(volumes=["data"])
    volume_create(actor=None, values={"name": "data", "path": "/srv/data"})
    fast_path_cache.clear()
    sent = wanted(example, volumes=["data"])
    assert [warm(header, sent).is_fast for _ in range(3)][-1]

    Volume.objects.update(is_restricted=True)

    assert warm(header, sent).status == 400


def test_a_closed_queue_takes_nothing_any_more(warm: Send, header: str, example: Example) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(removed_at=timezone.now())

    assert warm(header, wanted(example)).status == 404


def test_a_renamed_queue_answers_to_its_new_name_only(
    warm: Send, header: str, example: Example
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(name="renamed")

    assert warm(header, wanted(example)).status == 404
    assert warm(header, wanted(example, queue="renamed")).status == 201


def test_a_lower_limit_holds_at_once(warm: Send, header: str, root: User, example: Example) -> None:
    policy_set_amounts(actor=root, policy=example.dev, reserved={}, limit={"gpu": 2})

    reply = warm(header, wanted(example))

    assert (reply.status, reply.data["code"]) == (422, "never_fits")


def test_a_new_version_of_the_configuration_is_read_before_the_next_task(
    warm: Send, header: str, example: Example
) -> None:
    LiveState.objects.update(version=LiveState.objects.get().version + 1)

    first, second = (warm(header, wanted(example)) for _ in range(2))

    assert (first.status, first.is_fast) == (201, False)
    assert (second.status, second.is_fast) == (201, True)


def test_a_limit_of_waiting_tasks_holds(warm: Send, header: str, example: Example) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(max_waiting=1)

    assert [warm(header, wanted(example)).status for _ in range(2)] == [201, 409]


def test_an_administrator_enqueues_everywhere_until_they_are_none(
    send: Send, root: User, example: Example
) -> None:
    header = basic(root)
    replies = [send(header, wanted(example)) for _ in range(2)]
    root.groups.clear()

    assert [reply.status for reply in replies] == [201, 201]
    assert send(header, wanted(example)).status == 404


def test_a_foreign_host_is_left_to_django(warm: Send, header: str, example: Example) -> None:
    environ = {"HTTP_HOST": "evil.example"}

    with pytest.raises(json.JSONDecodeError):
        warm(header, wanted(example), **environ)
    assert not Task.objects.exists()


def test_an_idempotency_key_is_kept(warm: Send, header: str, example: Example) -> None:
    replies = [
        warm(header, wanted(example), HTTP_IDEMPOTENCY_KEY="once"),
        warm(header, wanted(example), HTTP_IDEMPOTENCY_KEY="once"),
    ]

    assert replies[0].data == replies[1].data
    assert Task.objects.count() == 1


def test_a_group_that_is_remembered_and_empty_counts_as_another_one(
    warm: Send, header: str, example: Example, settings: Any
) -> None:
    settings.RPM_TASK_GROUPS_PER_QUEUE = 1
    assert warm(header, wanted(example, priority=-5)).status == 201

    reply = warm(header, wanted(example))

    assert (reply.status, reply.is_fast) == (409, False)
