"""The grants that a policy makes to its group, told apart by their source."""

from collections.abc import Iterable

from django.contrib.auth.models import Group, Permission
from django.db.models import Q

from apps.accounts.models import ADMINS, User
from apps.accounts.models.grants import GrantSource
from apps.policies.models import Queue, QueueGroupPermission, QueueUserPermission

GIVEN = ("view_queue", "enqueue_queue")


def group_grants_give(*, queues: Iterable[Queue], group: Group, actor: User | None) -> None:
    """View and enqueue for the group; a grant that a person made already stays as it is."""
    rights = list(Permission.objects.filter(content_type__app_label="policies", codename__in=GIVEN))
    QueueGroupPermission.objects.bulk_create(
        (
            QueueGroupPermission(
                content_object=queue,
                group=group,
                permission=right,
                source=GrantSource.POLICY,
                created_by=actor,
            )
            for queue in queues
            for right in rights
        ),
        ignore_conflicts=True,
    )


def group_grants_move(
    *, queues: Iterable[Queue], old: Group, new: Group, actor: User | None
) -> None:
    """What the policy gave to `old` goes to `new`; what people gave stays."""
    kept = list(queues)
    QueueGroupPermission.objects.filter(
        content_object__in=kept, group=old, source=GrantSource.POLICY
    ).delete()
    group_grants_give(queues=kept, group=new, actor=actor)


def owners_who_may_enqueue(queue: Queue) -> set[int]:
    """Ids of active people who hold `enqueue_queue`, by a group, by themselves, or as admins."""
    groups = QueueGroupPermission.objects.filter(
        content_object=queue, permission__codename="enqueue_queue"
    )
    users = QueueUserPermission.objects.filter(
        content_object=queue, permission__codename="enqueue_queue"
    )
    people = User.objects.filter(is_active=True).filter(
        Q(groups__in=groups.values("group"))
        | Q(pk__in=users.values("user"))
        | Q(groups__name=ADMINS)
    )
    return set(people.values_list("pk", flat=True))
