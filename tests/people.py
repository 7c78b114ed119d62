"""The fixed cast of people, and the worked example of two teams and two pools.

`alice` owns, `bob` is in her group, `charlie` must not see it, `root` administers; `quinn` is a
queue administrator.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.accounts.models import ADMINS, QUEUE_ADMINS, User
from apps.accounts.services.people import user_create
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_create
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queues import profile_connect
from apps.policies.document import parse
from apps.policies.models import Policy, Pool, Profile, Queue

EXAMPLE = {
    "pools": [
        {
            "name": "H100 Half a Superpod",
            "capacity": 8,
            "profiles": ["2xGPU", "4xGPU", "8xGPU", "0.5xGPU"],
        },
        {"name": "Bare Metal Low END GPUs", "capacity": 8},
    ],
    "profiles": [
        {
            "name": "4xGPU",
            "request": 4,
            "pools": [
                {"pool": "Bare Metal Low END GPUs", "name": "4 GPU Low End"},
                {"pool": "H100 Half a Superpod", "name": "4 GPU H100 link"},
            ],
        },
        {"name": "2xGPU", "request": 2, "pools": [{"pool": "H100 Half a Superpod"}]},
        {"name": "8xGPU", "request": 8, "pools": [{"pool": "H100 Half a Superpod"}]},
        {"name": "0.5xGPU", "request": 0.5, "pools": [{"pool": "H100 Half a Superpod"}]},
    ],
}


@dataclass(frozen=True)
class Example:
    """The worked example, provisioned and connected; no node serves its pools yet."""

    dev: Policy
    research: Policy
    dev_queue: Queue
    research_queue: Queue
    h100: Pool
    bare_metal: Pool
    profile: Profile


@pytest.fixture
def alice(dev_group: Group) -> User:
    return user_create(username="alice", password=None, groups=["dev"])


@pytest.fixture
def bob(dev_group: Group) -> User:
    return user_create(username="bob", password=None, groups=["dev"])


@pytest.fixture
def charlie(research_group: Group) -> User:
    return user_create(username="charlie", password=None, groups=["research"])


@pytest.fixture
def quinn(db: None) -> User:
    return user_create(username="quinn", password=None, groups=[QUEUE_ADMINS])


def root_make() -> User:
    return user_create(username="root", password=None, groups=[ADMINS])


def example_make(root: User, dev_group: Group, research_group: Group) -> Example:
    draft_write(document=parse(EXAMPLE), actor=root)
    document_provision(actor=root, note="The worked example.")
    profile = Profile.objects.get(name="4xGPU")
    dev = policy_create(
        actor=root, name="Dev", group=dev_group, reserved={"gpu": 8}, limit={"gpu": 16}
    )
    research = policy_create(
        actor=root, name="Research", group=research_group, reserved={"gpu": 8}, limit={"gpu": 16}
    )
    return Example(
        dev=dev,
        research=research,
        dev_queue=profile_connect(actor=root, policy=dev, profile=profile),
        research_queue=profile_connect(actor=root, policy=research, profile=profile),
        h100=Pool.objects.get(name="H100 Half a Superpod"),
        bare_metal=Pool.objects.get(name="Bare Metal Low END GPUs"),
        profile=profile,
    )


@pytest.fixture
def api_as() -> Callable[[User], APIClient]:
    """A REST client that is signed in as the given user."""

    def sign_in(user: User) -> APIClient:
        client = APIClient()
        client.force_login(user)
        return client

    return sign_in
