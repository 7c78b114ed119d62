"""Fills an empty installation for `enqueue.py`, which starts this in a process of its own.

Prints one JSON object: the queue's name and a credential that may enqueue in it.
"""

import json
import sys

import django

django.setup()

from django.contrib.auth.models import Group  # noqa: E402  # needs the models
from django.core.management import call_command  # noqa: E402

from apps.accounts.services.credentials import credential_create  # noqa: E402
from apps.accounts.services.people import user_create  # noqa: E402
from apps.configuration.services.drafts import draft_write  # noqa: E402
from apps.configuration.services.policies import policy_create  # noqa: E402
from apps.configuration.services.provision import document_provision  # noqa: E402
from apps.configuration.services.queues import profile_connect  # noqa: E402
from apps.policies.document import parse  # noqa: E402
from apps.policies.models import Profile  # noqa: E402

DOCUMENT = {
    "pools": [{"name": "Pool", "capacity": 8, "profiles": ["1xGPU"]}],
    "profiles": [{"name": "1xGPU", "request": 1, "pools": [{"pool": "Pool"}]}],
}


def main() -> None:
    call_command("migrate", verbosity=0)
    group = Group.objects.create(name="team")
    root = user_create(username="root", password=None, groups=["Admins"])
    user = user_create(username="alice", password=None, groups=[group.name])
    draft_write(document=parse(DOCUMENT), actor=root)
    document_provision(actor=root)
    policy = policy_create(actor=root, name="Team", group=group, reserved={"gpu": 8})
    profile = Profile.objects.get(name="1xGPU")
    queue = profile_connect(actor=root, policy=policy, profile=profile)
    credential, secret = credential_create(user=user, label="bench")
    json.dump(
        {
            "queue": queue.name,
            "queue_id": queue.pk,
            "owner_id": user.pk,
            "key": credential.key,
            "secret": secret,
        },
        sys.stdout,
    )


main()
