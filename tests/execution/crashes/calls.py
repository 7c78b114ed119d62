"""What tests ask of the control plane, carried out in a process of its own. JSON in and out."""

from typing import Any

from django.contrib.auth.models import Group

from apps.accounts.models import ADMINS, User
from apps.accounts.services.people import user_create
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_create
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queues import profile_connect
from apps.execution.services.node_registration import SimulatedGpus, node_add
from apps.execution.transport.host_keys import HostKey
from apps.nodes.models import Runtime, Transport
from apps.policies.document import parse
from apps.policies.models import Pool, Profile, Queue
from apps.tasks.models import Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.services.stop import task_abort
from apps.tasks.task_spec import TaskSpec

POLICIES = ("poor", "rich")


def install(*, lanes: dict[str, int], grace_s: int) -> None:
    """A pool of this capacity and two queues for each lane.

    What `rich` submits takes the slots of what `poor` runs.
    """
    root = user_create(username="root", password=None, groups=[ADMINS])
    document = {
        "pools": [{"name": lane, "capacity": count} for lane, count in lanes.items()],
        "profiles": [{"name": lane, "request": 1, "pools": [{"pool": lane}]} for lane in lanes],
    }
    draft_write(document=parse(document), actor=root)
    document_provision(actor=root, note="Crashes.")
    total = sum(lanes.values())
    for name, reserved in zip(POLICIES, (0, total), strict=True):
        group = Group.objects.create(name=name)
        user_create(username=name, password=None, groups=[name])
        policy = policy_create(
            actor=root,
            name=name,
            group=group,
            reserved={"gpu": reserved},
            limit={"gpu": total},
        )
        for lane in lanes:
            profile = Profile.objects.get(name=lane)
            queue = profile_connect(
                actor=root, policy=policy, profile=profile, queue_name=f"{name}-{lane}"
            )
            Queue.objects.filter(pk=queue.pk).update(grace_s=grace_s)


def add_node(*, lane: str, count: int, host_key: tuple[str, str], **facts: Any) -> None:
    """The node of a lane, with simulated devices. `facts` are columns of `Node`."""
    node_add(
        name=lane,
        pool=Pool.objects.get(name=lane),
        actor=None,
        host_key=HostKey(*host_key),
        simulated=SimulatedGpus(count=count),
        transport=Transport.SSH,
        runtime=Runtime.PROCESS,
        allows_process=True,
        **facts,
    )


def submit(*, queue: str, command: list[str], environment: dict[str, str]) -> str:
    """The id of the new task."""
    actor = User.objects.get(username=queue.partition("-")[0])
    spec = TaskSpec(name=queue, queue=queue, image="none", command=command, environment=environment)
    return str(task_submit(actor=actor, spec=spec).pk)


def abort(*, task: str) -> str:
    """The state of the task afterwards."""
    root = User.objects.get(username="root")
    return str(task_abort(actor=root, task=Task.objects.get(pk=task)).state)
