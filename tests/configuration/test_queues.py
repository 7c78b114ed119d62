"""Names of queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.models import User
from apps.configuration.selectors import draft_document
from apps.configuration.services.policies import policy_create
from apps.configuration.services.queues import profile_connect, queue_name_suggest, queue_rename
from apps.core.errors import BadInput
from apps.policies.models import DraftState, Policy, Profile
from apps.policies.models.policies import QUEUE_NAME
from tests.people import Example

pytestmark = pytest.mark.django_db

names = st.text(min_size=1, max_size=120)


@given(policy=names, profile=names)
def test_a_suggested_name_is_always_allowed(policy: str, profile: str) -> None:
    QUEUE_NAME(
        queue_name_suggest(policy=Policy(pk=1, name=policy), profile=Profile(pk=2, name=profile))
    )


@pytest.mark.parametrize("name", ["6", "1-2", "007"])
def test_a_queue_is_not_named_like_the_id_of_another(
    root: User, example: Example, name: str
) -> None:
    with pytest.raises(BadInput, match="at least one letter") as renaming:
        queue_rename(actor=root, queue=example.dev_queue, name=name)
    with pytest.raises(BadInput, match="at least one letter"):
        profile_connect(
            actor=root,
            policy=example.dev_queue.policy,
            profile=example.dev_queue.profile,
            queue_name=name,
        )

    assert list(renaming.value.fields) == ["name"]


def test_a_name_is_suggested_with_a_letter() -> None:
    name = queue_name_suggest(policy=Policy(pk=1, name="6"), profile=Profile(pk=1, name="7"))

    assert name == "queue-6-7"


def test_a_suggested_name_is_not_taken_yet(root: User, example: Example) -> None:
    other = policy_create(actor=root, name="Dev!", group=example.dev.group)

    queue = profile_connect(actor=root, policy=other, profile=example.profile)

    assert queue.name == "dev-4xgpu-2"


def test_a_renamed_queue_makes_readers_of_the_draft_read_again(
    root: User, example: Example
) -> None:
    version = DraftState.objects.get().version

    queue_rename(actor=root, queue=example.dev_queue, name="dev-large")

    assert draft_document().profiles[0].queues == ("dev-large", "research-4xgpu")
    assert DraftState.objects.get().version == version + 1
