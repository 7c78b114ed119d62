"""Two organisations on one pool: `ada` works for Acme, which `adam` administers.

Rita and Rex are the same for its rival, of which everything has RIVAL in its name.
"""

from dataclasses import dataclass

import pytest
from django.contrib.auth.models import Group

from apps.accounts.models import Tenant, User
from apps.accounts.services.people import user_create
from apps.configuration.services.policies import policy_create
from apps.configuration.services.queues import profile_connect
from apps.configuration.services.tenants import tenant_create
from apps.policies.models import Policy, Profile, Queue
from tests.people import Example

RIVAL = "rival-only"


@dataclass(frozen=True)
class Organisation:
    """A top with one team below it, and who works there."""

    tenant: Tenant
    top: Policy
    team: Policy
    queue: Queue
    group: Group
    admins: Group
    member: User
    admin: User


@dataclass(frozen=True)
class Organisations:
    acme: Organisation
    rival: Organisation
    example: Example


def organisation(
    root: User, name: str, *, member: str, admin: str, profile: Profile
) -> Organisation:
    """A tenant whose top reserves 4 GPUs and holds 8 at most; its team reserves 2."""
    group = Group.objects.create(name=f"{name}-team-group")
    admins = Group.objects.create(name=f"{name}-admin-group")
    top = policy_create(
        actor=root, name=f"{name}-top", group=admins, reserved={"gpu": 4}, limit={"gpu": 8}
    )
    team = policy_create(
        actor=root, name=f"{name}-team", group=group, parent=top, reserved={"gpu": 2}
    )
    tenant = tenant_create(actor=root, top=top, admin_group=admins, groups=[group])
    queue = profile_connect(actor=root, policy=team, profile=profile, queue_name=f"{name}-queue")
    return Organisation(
        tenant=tenant,
        top=Policy.objects.get(pk=top.pk),
        team=Policy.objects.get(pk=team.pk),
        queue=queue,
        group=group,
        admins=admins,
        member=user_create(username=member, password=None, groups=[group.name]),
        admin=user_create(username=admin, password=None, groups=[admins.name]),
    )


@pytest.fixture
def organisations(root: User, example: Example) -> Organisations:
    profile = Profile.objects.get(name="2xGPU")
    return Organisations(
        acme=organisation(root, "acme", member="ada", admin="adam", profile=profile),
        rival=organisation(
            root, RIVAL, member=f"{RIVAL}-rita", admin=f"{RIVAL}-rex", profile=profile
        ),
        example=example,
    )
