"""What installations have that were there before policies gave their rights on themselves."""

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission

from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource
from apps.policies.models import PolicyGroupPermission, Queue, QueueGroupPermission
from apps.policies.selectors import policies_visible_to, queues_open_to
from tests.cast import Example

pytestmark = pytest.mark.django_db
MIGRATION = "apps.policies.migrations.0008_policies_give_their_rights"


def test_rights_that_policies_gave_queue_by_queue_are_given_once(
    example: Example, alice: User, charlie: User
) -> None:
    PolicyGroupPermission.objects.all().delete()
    for queue in Queue.objects.select_related("policy"):
        for name in ("view_queue", "enqueue_queue"):
            QueueGroupPermission.objects.create(
                content_object=queue,
                group=queue.policy.group,
                permission=Permission.objects.get(codename=name),
                source=GrantSource.POLICY,
            )
    own = QueueGroupPermission.objects.create(
        content_object=example.dev_queue,
        group=example.research.group,
        permission=Permission.objects.get(codename="view_queue"),
    )

    for _ in range(2):
        import_module(MIGRATION).forwards(apps, None)

    assert QueueGroupPermission.objects.get() == own
    assert PolicyGroupPermission.objects.filter(source=GrantSource.POLICY).count() == 4
    assert policies_visible_to(alice).get() == example.dev
    assert queues_open_to(alice).get() == example.dev_queue
    assert queues_open_to(charlie).get() == example.research_queue
