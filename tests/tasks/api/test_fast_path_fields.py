"""Every field of a task is stored and answered by the fast path as by the standard path."""

from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import User
from apps.core.keyring import HIDDEN
from apps.events.models import Event
from apps.nodes.services import volume_create
from apps.policies.models import Profile
from apps.tasks.models import Task
from apps.tasks.task_spec import FIELDS, TaskSpec, spec_of
from tests.people import Example
from tests.tasks.api.conftest import Send
from tests.tasks.api.test_tasks import wanted

pytestmark = pytest.mark.django_db

# Another value than the default for every field that the fast path takes.
FULL = {
    "name": "  spaces and größe ",
    "image": "registry.example.org/team/train:1.0",
    "command": ["python", "-c", "print('ü')"],
    "environment": {"API_TOKEN": "x", "SHELL": "sh", "WANDB_RUN": "y"},
    "working_dir": "/work",
    "is_restartable": False,
    "time_limit_s": 60,
    "retries": 2,
    "tags": ["a", "ü"],
    "request": {"gpu": "0.5"},
    "replicas": 2,
    "volumes": ["data"],
    "priority": -5,
    "is_preemptible": False,
    "checkpoint_volume": "data",
    "abort_callback": {"script": "echo ü", "language": "python", "timeout_s": 5},
}


@pytest.mark.parametrize("changes", [{}, FULL])
def test_both_paths_store_and_answer_the_same(
    send: Send, header: str, example: Example, changes: dict[str, Any]
) -> None:
    User.objects.update(redacted_variables=["wandb_*"])
    volume_create(actor=None, values={"name": "data", "path": "/srv/data"})
    Profile.objects.update(is_dynamic=True, volumes=["data"])

    standard = send(header, wanted(example, **changes), fast=False)
    fast = send(header, wanted(example, **changes))

    assert fast.is_fast == (connection.vendor == "postgresql")
    own = {"id", "created_at", "submitted_at", "changed_at"}
    assert {k: v for k, v in fast.data.items() if k not in own} == {
        k: v for k, v in standard.data.items() if k not in own
    }
    assert list(fast.data) == list(standard.data)
    assert fast.data["environment"].get("WANDB_RUN") in (None, HIDDEN)
    rows = [
        {k: v for k, v in vars(task).items() if not k.startswith("_") and k not in own}
        for task in Task.objects.order_by("id")
    ]
    assert rows[0] == rows[1]
    events = Event.objects.filter(kind="task.queued").order_by("id")
    assert [event.object_id for event in events] == [standard.data["id"], fast.data["id"]]
    facts = [(e.actor_id, e.queue_id, e.policy_id, e.object_type, e.data) for e in events]
    assert facts[0] == facts[1]
    etags = {reply.headers["ETag"].strip('"').isdigit() for reply in (fast, standard)}
    assert etags == {True}


def test_every_field_that_the_fast_path_takes_is_compared(example: Example) -> None:
    spec = spec_of(wanted(example, **FULL))
    plain = TaskSpec(name="")

    # Tasks with secrets, arrays, and those on hold or after others take the standard path.
    left = {name for name in FIELDS if getattr(spec, name) == getattr(plain, name)}

    assert left == {"secrets", "hold", "array", "after"}
