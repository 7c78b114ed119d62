"""Many policies, users, vaults and audit entries at once, for lists that must stay fast."""

from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.utils import timezone

from apps.accounts.models import ADMINS, USERS, User
from apps.configuration.services.grants import policy_grants_sync
from apps.events.models import AuditEntry
from apps.policies.models import Policy, PolicyAmount, Pool, PoolLink, Profile, Queue
from apps.vaults.models import Vault

# The number of policy groups of each user; the user with many permissions is in a fifth of all.
GROUPS_EACH = 4
MEMBER_IN = 5


@dataclass(frozen=True, slots=True)
class BulkData:
    """The readers: an administrator, a user with very many grants, and one with a few."""

    admin: User
    member: User
    plain: User
    queues: list[Queue]


def bulk_data(*, policies: int, people: int, tag: str) -> BulkData:
    """Add this many of each; a policy has a group, a queue, a vault and a service account."""
    groups = Group.objects.bulk_create(Group(name=f"{tag} {n:04}") for n in range(policies))
    users = User.objects.bulk_create(
        User(username=f"{tag}-{n:05}", email=f"{tag}{n}@example.org", password="!")
        for n in range(people)
    )
    programs = User.objects.bulk_create(
        User(username=f"{tag}-program-{n:04}", is_service=True, password="!")
        for n in range(policies // 5)
    )
    admin, member, plain = users[:3]
    everybody, admins = Group.objects.get(name=USERS), Group.objects.get(name=ADMINS)
    pairs = {(one.pk, everybody.pk) for one in (*users, *programs)}
    pairs |= {(admin.pk, admins.pk)}
    for number, one in enumerate((*users[2:], *programs)):
        pairs |= {(one.pk, groups[(number + k * 7) % policies].pk) for k in range(GROUPS_EACH)}
    pairs |= {(member.pk, group.pk) for group in groups[::MEMBER_IN]}
    through = User.groups.through
    through.objects.bulk_create(through(user_id=u, group_id=g) for u, g in sorted(pairs))
    queues = _queues(groups, tag)
    _vaults(groups, tag)
    AuditEntry.objects.bulk_create(
        AuditEntry(
            verb="group.changed",
            actor_id=one.pk,
            actor=one.username,
            object_type="user",
            object_id=str(one.pk),
            object_name=one.username,
        )
        for one in users
    )
    return BulkData(admin, member, plain, queues)


def _queues(groups: list[Group], tag: str) -> list[Queue]:
    pool = Pool.objects.create(name=f"{tag} pool", capacity={"gpu": "1000"})
    profile = Profile.objects.create(name=f"{tag} profile", request={"gpu": "1"})
    PoolLink.objects.create(
        profile=profile, pool=pool, name=f"{tag} link", routing_rank=0, execution_rank=0
    )
    rows = Policy.objects.bulk_create(
        Policy(name=f"{tag} policy {number}", position=number, group=group)
        for number, group in enumerate(groups)
    )
    PolicyAmount.objects.bulk_create(
        PolicyAmount(policy=row, key="gpu", reserved_text="1", reserved_milli=1000) for row in rows
    )
    queues = Queue.objects.bulk_create(
        Queue(name=f"{tag}-{number}", profile=profile, policy=row, queuing_rank=number)
        for number, row in enumerate(rows)
    )
    policy_grants_sync(policies=rows)
    return queues


def _vaults(groups: list[Group], tag: str) -> None:
    Vault.objects.bulk_create(
        Vault(name=f"{tag}-{number}", group=group, position=number, updated_at=timezone.now())
        for number, group in enumerate(groups)
    )
