"""The worked example as a demonstration: simulated GPUs, and processes.

Two pools of 8 GPUs, four profiles, two teams with 8 GPUs reserved each and a limit of 16, four
tasks each. Four run, four wait and say why; as tasks end, the next ones start.
"""

import json
import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import structlog
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import ADMINS, GroupInfo, User
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_deactivate
from apps.configuration.selectors import draft_document
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_create, policy_remove
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queues import profile_connect
from apps.core.errors import Conflict, RpmError
from apps.execution.node_server.server import NodeServer
from apps.execution.own_account import SECONDS as SIMULATED_SECONDS
from apps.execution.services.node_registration import SimulatedGpus, node_add
from apps.nodes.models import Node, NodeState, Runtime, Transport
from apps.policies.document import Document, Link, PoolEntry, ProfileEntry
from apps.policies.models import Policy, Pool, Profile
from apps.tasks.lifecycle.states import ENDED_STATES
from apps.tasks.models import Member, Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.services.stop import task_abort
from apps.tasks.task_spec import TaskSpec

log = structlog.get_logger(__name__)
MARK = {"demonstration": "yes"}
H100 = "H100 Half a Superpod"
BARE_METAL = "Bare Metal Low END GPUs"
POOLS = (
    PoolEntry(
        name=H100,
        description="Simulated. Large training runs and evaluations.",
        capacity={"gpu": "8"},
        profiles=("2xGPU", "4xGPU", "8xGPU", "0.5xGPU"),
    ),
    PoolEntry(
        name=BARE_METAL,
        description="Simulated. Older cards for everyday work.",
        capacity={"gpu": "8"},
        profiles=("4xGPU",),
    ),
)
PROFILES = (
    ProfileEntry(name="2xGPU", request={"gpu": "2"}, pools=(Link(pool=H100, name="2 GPU H100"),)),
    ProfileEntry(
        name="4xGPU",
        request={"gpu": "4"},
        pools=(
            Link(pool=BARE_METAL, name="4 GPU Low End"),
            Link(pool=H100, name="4 GPU H100 link"),
        ),
    ),
    ProfileEntry(name="8xGPU", request={"gpu": "8"}, pools=(Link(pool=H100, name="8 GPU H100"),)),
    ProfileEntry(
        name="0.5xGPU", request={"gpu": "0.5"}, pools=(Link(pool=H100, name="Half a GPU"),)
    ),
)
TEAMS = ("Dev", "Research")
TASK_NAMES = {
    "Dev": ("tokenizer-sweep", "nightly-regression", "quantize-13b", "eval-checkpoint-41000"),
    "Research": ("reward-model-7b", "sft-instruct-v9", "longcontext-yarn", "dpo-helpfulness"),
}
# Fewer tasks than this leave GPUs idle: then the next ones are enqueued.
LEAST_ALIVE = 3
# Later tasks run longer, so that an unattended demonstration fills no disk.
LATER_FACTOR = 4
# Longer than the grace period of its queues.
ENDS_WITHIN_S = 60.0
# Seconds that the tasks of a team run, one after the other different, so that they end in turn.
RUN_S = {"Dev": (45, 75, 60, 60), "Research": (60, 90, 60, 60)}
SCRIPT = """i=0
while [ "$i" -lt "$1" ]; do
  i=$((i+1))
  echo "step $i of $1, on $RPM_DEVICES"
  sleep 1
done
echo "done, loss 0.0$((RANDOM_SEED % 10))"
"""


@dataclass(frozen=True, slots=True)
class DemonstrationLogin:
    """A person of the demonstration; the password was made at random here."""

    username: str
    password: str
    role: str


def logins_path() -> Path:
    return Path(settings.HOME.file("demonstration-logins.json"))


def is_loaded() -> bool:
    """Whether the demonstration is loaded, or was removed on purpose."""
    return Node.objects.filter(labels=MARK).exists()


def is_present() -> bool:
    return Node.objects.filter(labels=MARK, removed_at__isnull=True).exists()


def stored_logins() -> list[DemonstrationLogin]:
    """The log-ins made at the first load, in a 0600 file next to the database."""
    try:
        content = logins_path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [DemonstrationLogin(**one) for one in json.loads(content)]


def load() -> list[DemonstrationLogin]:
    """Make pools, profiles, teams and people, add two nodes on this machine, enqueue the work."""
    with transaction.atomic():
        logins = _people()
        draft = draft_document()
        document = _with(draft, (*draft.pools, *POOLS), (*draft.profiles, *PROFILES))
        draft_write(document=document, actor=None)
        document_provision(actor=None, note="The demonstration.")
        _teams()
    _keep(logins)
    for pool, prefix, model in ((H100, "h100", "H100 80GB"), (BARE_METAL, "bare-metal", "L4")):
        node_add(
            name=f"demo-{prefix}-01",
            pool=Pool.objects.get(name=pool, removed_at__isnull=True),
            actor=None,
            simulated=SimulatedGpus(count=8, model=f"{model} (simulated)"),
            transport=Transport.LOCAL,
            runtime=Runtime.PROCESS,
            allows_process=True,
            state_dir=str(settings.HOME.file(f"node-{prefix}")),
            labels=MARK,
        )
    enqueue_tasks()
    return logins


def enqueue_tasks(*, factor: int = 1) -> int:
    """Four tasks for each team, unless enough work of the demonstration waits or runs.

    Args:
        factor: how many times as long as the first ones they run.
    """
    people = {team: User.objects.get(username=f"demo-{team.lower()}") for team in TEAMS}
    alive = Task.objects.filter(owner__in=people.values()).exclude(state__in=ENDED_STATES)
    if alive.count() >= LEAST_ALIVE:
        return 0
    for team in TEAMS:
        for name, seconds in zip(TASK_NAMES[team], RUN_S[team], strict=True):
            task_submit(
                actor=people[team],
                spec=TaskSpec(
                    name=name,
                    queue=f"{team.lower()}-4xgpu",
                    command=["/bin/sh", "-c", SCRIPT, "demo", str(seconds * factor)],
                    environment={
                        "RANDOM_SEED": str(len(name)),
                        # For where the script is not run (`apps/execution/own_account.py`).
                        SIMULATED_SECONDS: str(seconds * factor),
                    },
                    tags=["demonstration"],
                ),
            )
    return len(TEAMS) * 4


def tasks_replenish() -> int:
    """Enqueue the next tasks where the demonstration is loaded and its work has nearly ended."""
    if not logins_path().exists() or not is_present():
        return 0
    try:
        return enqueue_tasks(factor=LATER_FACTOR)
    except (RpmError, User.DoesNotExist) as error:
        # An administrator changed its teams or queues, or nothing may be enqueued now.
        log.info("demonstration.no_work", error=str(error))
        return 0


def remove() -> list[str]:
    """Remove the demonstration: abort its tasks, deactivate its users.

    Returns:
        Users that stay, because there is no other administrator.

    Raises:
        Conflict: some of its work does not end.
    """
    # From now on nothing new is enqueued (`tasks_replenish`).
    logins_path().unlink(missing_ok=True)
    for task in Task.objects.filter(owner__username__startswith="demo-").exclude(
        state__in=ENDED_STATES
    ):
        task_abort(actor=task.owner, task=task, detail="The demonstration was removed.")
    _await_ends()
    with transaction.atomic():
        for policy in Policy.objects.filter(name__in=TEAMS, removed_at__isnull=True):
            policy_remove(actor=None, policy=policy)
        draft = draft_document()
        pools = tuple(pool for pool in draft.pools if pool.name not in {H100, BARE_METAL})
        ours = {profile.name for profile in PROFILES}
        profiles = tuple(profile for profile in draft.profiles if profile.name not in ours)
        draft_write(document=_with(draft, pools, profiles), actor=None)
        document_provision(actor=None, note="The demonstration was removed.")
        Node.objects.filter(labels=MARK, removed_at__isnull=True).update(
            removed_at=timezone.now(), state=NodeState.NEW
        )
        return [person.username for person in _present_people() if not _deactivate(person)]


def _present_people() -> list[User]:
    people = User.objects.filter(username__startswith="demo-", is_active=True, is_service=False)
    return list(people.order_by("username"))


def _deactivate(person: User) -> bool:
    """Whether the user is deactivated now; the last administrator always stays."""
    try:
        person_deactivate(actor=None, user=person)
    except Conflict:
        return False
    return True


def _await_ends() -> None:
    """Let the work end on its nodes, served by a worker that runs, or from here if none does."""
    members = Member.objects.filter(node__labels=MARK, released_at__isnull=True)
    deadline = time.monotonic() + ENDS_WITHIN_S
    server = NodeServer()
    server.start()
    try:
        while members.exists():
            if time.monotonic() > deadline:
                raise Conflict("Some work of the demonstration does not end; try again later.")
            time.sleep(0.2)
    finally:
        server.stop()


def _with(
    document: Document, pools: tuple[PoolEntry, ...], profiles: tuple[ProfileEntry, ...]
) -> Document:
    return msgspec.structs.replace(document, pools=pools, profiles=profiles)


def _people() -> list[DemonstrationLogin]:
    logins = [_person("demo-admin", ADMINS, "administrator")]
    for team in TEAMS:
        name = f"demo-{team.lower()}"
        group, _ = Group.objects.get_or_create(name=name)
        GroupInfo.objects.update_or_create(
            group=group, defaults={"description": f"The {team} team, for trying out."}
        )
        logins.append(_person(name, group.name, f"member of {team}"))
    return logins


def _person(name: str, group: str, role: str) -> DemonstrationLogin:
    """A new user, or one of an earlier demonstration with a new password."""
    login = DemonstrationLogin(name, secrets.token_urlsafe(9), role)
    known = User.objects.filter(username=name).first()
    if known is None:
        user_create(username=name, password=login.password, groups=[group])
    else:
        known.set_password(login.password)
        known.is_active = True
        known.save()
    return login


def _teams() -> None:
    for team in TEAMS:
        policy = policy_create(
            actor=None,
            name=team,
            group=Group.objects.get(name=f"demo-{team.lower()}"),
            reserved={"gpu": 8},
            limit={"gpu": 16},
            description=f"What the {team} team may use.",
        )
        for profile in PROFILES:
            profile_connect(
                actor=None,
                policy=policy,
                profile=Profile.objects.get(name=profile.name, removed_at__isnull=True),
            )


def _keep(logins: list[DemonstrationLogin]) -> None:
    descriptor = os.open(logins_path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        json.dump([asdict(login) for login in logins], handle)
