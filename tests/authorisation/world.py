"""One installation in which everything exists once for everybody.

Teams `a` and `b` are in the tree of one tenant, whose top is `m`; `t` is in that of another, below
`u`. In each team an *owner* and a *mate* have the same objects; objects of the whole installation
have the place `x`.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.utils import timezone

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import ADMINS, QUEUE_ADMINS, IdentityProvider, Protocol, Scope, User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.groups import group_save
from apps.accounts.services.invitations import person_invite
from apps.accounts.services.people import user_create
from apps.accounts.services.service_accounts import service_account_create
from apps.allocation.models import PassRecord
from apps.configuration.models import Revision
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_create
from apps.configuration.services.pools import policy_pause
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queues import profile_connect
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.configuration.services.tenants import tenant_create
from apps.events.models import AuditEntry, Event
from apps.nodes.models import Device, Node, Runtime, Transport, Volume, VolumeUserPermission
from apps.policies.document import parse
from apps.policies.models import (
    DraftPool,
    DraftProfile,
    DraftState,
    Policy,
    PolicyGroupPermission,
    PolicyUserPermission,
    Pool,
    Profile,
)
from apps.policies.services import registry_credential_save
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, Member, Task, TaskUserPermission
from apps.tasks.services.enqueue.submission import task_create, task_submit
from apps.tasks.services.members.logs import log_append
from apps.tasks.task_spec import TaskSpec
from apps.usage.models import Rate
from apps.vaults.models import VaultFormat
from apps.vaults.services.vaults import vault_create
from tests.authorisation.marks import Marks, number_distinctly
from tests.authorisation.world_notices import notices_make_all

INSTALLATION, TEAMS = "x", ("a", "b", "t")
TENANTS = {"m": ("a", "b"), "u": ("t",)}
OWNER, MATE = "owner", "mate"
SHARED = "shared"
PASSWORD = "correct horse battery staple"
AT = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


@dataclass(slots=True)
class World:
    """All objects, by kind, place and owner."""

    marks: Marks = field(default_factory=Marks)
    objects: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    people: dict[str, User] = field(default_factory=dict)

    def keep(self, row: Any, kind: str, place: str, owner: str = "") -> Any:
        self.objects[kind, place, owner] = row
        self.marks.row(row, kind, place, owner)
        return row

    def one(self, kind: str, place: str, owner: str = "") -> Any:
        return self.objects[kind, place, owner]


def world_make() -> World:
    """The world, in the database of the test."""
    number_distinctly()
    world = World()
    _installation(world)
    for top, teams in TENANTS.items():
        _tenant(world, top, teams)
    for place in TEAMS:
        _team(world, place)
        for owner in (OWNER, MATE):
            _belongings(world, place, owner)
        _second_factor(world, place, MATE)
        _works(world, place)
    notices_make_all(world)
    _rest_of_installation(world)
    _passwords(world)
    return world


def _installation(world: World) -> None:
    """Hardware, profiles, and administrators."""
    name = world.marks.name
    root = user_create(
        username=name("person", INSTALLATION, "root"), password=None, groups=[ADMINS]
    )
    queues = [QUEUE_ADMINS]
    admin = user_create(
        username=name("person", INSTALLATION, "queues"), password=None, groups=queues
    )
    world.people |= {
        "root": world.keep(root, "person", INSTALLATION, "root"),
        "queues": world.keep(admin, "person", INSTALLATION, "queues"),
    }
    pools = [name("pool", place) for place in (INSTALLATION, *TEAMS)]
    profiles = [name("profile", place) for place in (INSTALLATION, *TEAMS)]
    document = {
        "pools": [{"name": pool, "capacity": 8, "profiles": [*profiles]} for pool in pools],
        "profiles": [
            {"name": profile, "request": 4, "pools": [{"pool": pool} for pool in pools]}
            for profile in profiles
        ],
    }
    draft_write(document=parse(document), actor=root)
    document_provision(actor=root, note=name("note", INSTALLATION))
    for place, pool, profile in zip((INSTALLATION, *TEAMS), pools, profiles, strict=True):
        world.keep(Pool.objects.get(name=pool), "pool", place)
        world.keep(Profile.objects.get(name=profile), "profile", place)
    world.keep(Revision.objects.latest("number"), "revision", INSTALLATION)


def _tenant(world: World, place: str, teams: tuple[str, ...]) -> None:
    """The top of a tree with its administrators, and the groups that belong to it."""
    name, root = world.marks.name, world.people["root"]
    groups = {}
    for one in (place, *teams):
        about = name("group-text", one)
        group = group_save(actor=root, group=Group(name=name("group", one)), description=about)
        groups[one] = world.keep(group, "group", one)
    top = policy_create(
        actor=root,
        name=name("policy", place),
        description=name("policy-text", place),
        group=groups[place],
        reserved={"gpu": 16},
        limit={"gpu": 64},
    )
    world.keep(top, "policy", place)
    others = [groups[one] for one in teams]
    tenant = tenant_create(actor=root, top=top, admin_group=groups[place], groups=others)
    world.keep(tenant, "tenant", place)
    top.refresh_from_db()
    person = user_create(
        username=name("person", place, "admin"), password=None, groups=[groups[place].name]
    )
    world.people[f"{place}-admin"] = world.keep(person, "person", place, "admin")


def _team(world: World, place: str) -> None:
    """A group with its people, a policy and two queues."""
    name, root = world.marks.name, world.people["root"]
    group = world.one("group", place)
    top = next(top for top, teams in TENANTS.items() if place in teams)
    for owner in (OWNER, MATE):
        person = user_create(
            username=name("person", place, owner),
            password=None,
            email=f"{name('mail', place, owner)}@example.org",
            groups=[group.name],
        )
        person.first_name = name("first-name", place, owner)
        person.save(update_fields=["first_name"])
        world.people[f"{place}-{owner}"] = world.keep(person, "person", place, owner)
    policy = policy_create(
        actor=root,
        name=name("policy", place),
        description=name("policy-text", place),
        group=group,
        parent=world.one("policy", top),
        reserved={"gpu": 4},
        limit={"gpu": 32},
    )
    world.keep(policy, "policy", place)
    target = Target(RuleKind.POLICY, str(policy.pk))
    mate = RuleSubjects(users=(world.people[f"{place}-{MATE}"],))
    given = rule_grant(actor=root, target=target, level=Level.READ, subjects=mate)
    world.objects["rule", place, ""] = given.key
    for kind, profile in (("queue", INSTALLATION), ("second-queue", place)):
        queue = profile_connect(
            actor=root,
            policy=policy,
            profile=world.one("profile", profile),
            queue_name=name(kind, place),
        )
        world.keep(queue, kind, place)
    _programs(world, place, group)


def _programs(world: World, place: str, group: Group) -> None:
    """A service account, an invited person, and the group's registry credential."""
    name, root = world.marks.name, world.people["root"]
    made = service_account_create(
        actor=root, name=name("account", place), groups=[group.name], scope=Scope.ADMINISTER
    )
    account = User.objects.get(username=name("account", place))
    world.people[f"{place}-account"] = world.keep(account, "account", place, "account")
    world.objects["secret", place, "account"] = made
    key = account.credentials.get()
    world.keep(key, "credential", place, "account")
    invited = person_invite(
        actor=root,
        address=str,
        username=name("guest", place),
        email=f"{name('guest-mail', place)}@example.org",
        groups=[group],
    )
    world.keep(invited.user, "guest", place)
    world.objects["invitation", place, ""] = invited.link.rstrip("/").rpartition("/")[2]
    registry = registry_credential_save(
        actor=root,
        group=group,
        registry="registry.example.org",
        username=name("registry", place),
        password=name("secret", place, "registry"),
    )
    world.keep(registry, "registry", place)
    text = vault_text(world, place, "")
    vault = vault_create(
        actor=root, name=name("team-vault", place), text=text, group=group,
        format=VaultFormat.YAML, is_active=True,
    )  # fmt: skip
    world.keep(vault, "team-vault", place)


def vault_text(world: World, place: str, owner: str) -> str:
    """A text with one plain value, one variable and one secret."""
    name = world.marks.name
    kind = "vault-text" if owner else "team-vault-text"
    return (
        f"plain: {name(kind, place, owner)}\n"
        f"environment:\n  MINE: {name(kind, place, owner)}\n"
        f"secrets:\n  KEY: {name('secret', place, f'{owner}vault')}\n"
    )


def _belongings(world: World, place: str, owner: str) -> None:
    """The credential and the vault of one person."""
    name, person = world.marks.name, world.people[f"{place}-{owner}"]
    key, _ = credential_create(user=person, label=name("credential", place, owner))
    world.keep(key, "credential", place, owner)
    world.marks.known[key.key] = world.marks.known[str(key.pk)]
    vault = vault_create(
        actor=person,
        name=name("vault", place, owner),
        text=vault_text(world, place, owner),
        format=VaultFormat.YAML,
        is_active=True,
    )
    world.keep(vault, "vault", place, owner)


def _works(world: World, place: str) -> None:
    """For each person a draft, a waiting, a running and an ended task."""
    for owner in (OWNER, MATE):
        person = world.people[f"{place}-{owner}"]
        draft = _description(world, "draft", place, owner, queue=None)
        task = task_create(actor=person, spec=draft)
        world.keep(task, "draft", place, owner)
        # A rule lets the owner of team A read this one of team B.
        shared = {SHARED: TaskState.RUNNING} if (place, owner) == ("b", OWNER) else {}
        for kind, state in {**STATES, **shared}.items():
            task = task_submit(actor=person, spec=_description(world, kind, place, owner))
            if state is not None:
                _run(world, task, kind, place, owner)
                Task.objects.filter(pk=task.pk).update(state=state)
            world.keep(task, kind, place, owner)


STATES: dict[str, TaskState | None] = {
    "waiting": None,
    "running": TaskState.RUNNING,
    "ended": TaskState.COMPLETED,
}


def _description(
    world: World, kind: str, place: str, owner: str, *, queue: str | None = "queue"
) -> TaskSpec:
    name = world.marks.name
    secret = "draft-content" if queue is None else "content"
    return TaskSpec(
        name=name(kind, place, owner),
        queue=world.one(queue, place).name if queue else None,
        command=["train", name(secret, place, owner)],
        environment={"SETTING": name(secret, place, owner)},
        tags=[name("draft-tag" if queue is None else "tag", place, owner)],
        secrets={"KEY": name("secret", place, f"{owner}task")},
    )


def _run(world: World, task: Task, kind: str, place: str, owner: str) -> None:
    """Run a task as a pass and a node would, with a line in its log."""
    Task.objects.filter(pk=task.pk).update(state=TaskState.ALLOCATED, generation=1)
    assert task.queue is not None
    is_over, prefix = kind == "ended", "shared-" if kind == SHARED else ""
    attempt = Attempt.objects.create(
        task=task,
        generation=1,
        state=AttemptState.FINISHED if is_over else AttemptState.RUNNING,
        queue=task.queue,
        policy=task.queue.policy,
        pool=world.one("pool", place),
        request={"gpu": 4000},
        allocated_at=AT,
        started_at=AT,
        ended_at=AT if is_over else None,
    )
    world.keep(attempt, f"{prefix}attempt", place, owner)
    held = {"pool": attempt.pool, "amounts": {"gpu": 4000}}
    member = Member.objects.create(attempt=attempt, released_at=AT if is_over else None, **held)
    words = world.marks.name(f"{prefix}log", place, owner).encode()
    log_append(member_id=member.pk, offset=0, content=words, at=timezone.now())


def _passwords(world: World) -> None:
    """Set the same password for everybody, for second factors: hashing is slow."""
    known = make_password(PASSWORD)
    for person in world.people.values():
        if not person.is_service:
            person.password = known
            person.save(update_fields=["password"])


def _second_factor(world: World, place: str, owner: str) -> None:
    """A key of the owner; nobody can use it, but it can be removed."""
    key = Authenticator.objects.create(
        user=world.people[f"{place}-{owner}"],
        type=Authenticator.Type.WEBAUTHN,
        data={"name": world.marks.name("key-name", place, owner), "credential": {}},
    )
    world.keep(key, "second-factor", place, owner)


def _rest_of_installation(world: World) -> None:
    """Objects for administrators only."""
    name, root = world.marks.name, world.people["root"]
    pool = world.one("pool", INSTALLATION)
    local = {"transport": Transport.LOCAL, "runtime": Runtime.PROCESS}
    node = Node.objects.create(name=name("node", INSTALLATION), pool=pool, **local)
    world.keep(node, "node", INSTALLATION)
    Device.objects.create(node=node, index=0, uuid=name("device", INSTALLATION))
    path = f"/srv/{name('path', INSTALLATION)}"
    volume = Volume.objects.create(name=name("volume", INSTALLATION), path=path)
    world.keep(volume, "volume", INSTALLATION)
    # The profile of everybody names it, and a rule gives it to the owner of team T alone.
    Profile.objects.filter(pk=world.one("profile", INSTALLATION).pk).update(volumes=[volume.name])
    world.keep(Rate.objects.create(pool=pool, price=2, valid_from=AT), "rate", INSTALLATION)
    record = PassRecord.objects.create(at=AT, duration_ms=1, decisions={})
    world.keep(record, "pass", INSTALLATION)
    key, _ = credential_create(user=root, label=name("credential", INSTALLATION, "root"))
    world.keep(key, "credential", INSTALLATION, "root")
    provider = IdentityProvider.objects.create(
        slug=name("provider", INSTALLATION),
        name=name("provider-name", INSTALLATION),
        protocol=Protocol.OIDC,
        preset="oidc",
        client_id=name("client", INSTALLATION),
        authorization_url=f"https://example.org/{name('provider-address', INSTALLATION)}",
        token_url="https://example.org/token",
        jwks_url="https://example.org/jwks",
    )
    world.keep(provider, "provider", INSTALLATION)
    task = Target(RuleKind.TASK, str(world.one(SHARED, "b", OWNER).pk))
    for place, target in (("a", task), ("t", Target(RuleKind.VOLUME, str(volume.pk)))):
        subjects = RuleSubjects(users=(world.people[f"{place}-{OWNER}"],))
        rule_grant(actor=root, target=target, level=Level.READ, subjects=subjects)
    for place in TEAMS:
        policy = world.one("policy", place)
        policy_pause(actor=root, policy=policy, reason=name("reason", place))
    for kind, model in (
        ("draft-pool", DraftPool),
        ("draft-profile", DraftProfile),
        ("draft-state", DraftState),
        ("grant", PolicyUserPermission),
        ("group-grant", PolicyGroupPermission),
        ("task-grant", TaskUserPermission),
        ("volume-grant", VolumeUserPermission),
    ):
        world.keep(model._base_manager.order_by("pk")[0], kind, INSTALLATION)
    world.objects["policy-type", INSTALLATION, ""] = ContentType.objects.get_for_model(Policy).pk
    world.keep(AuditEntry.objects.latest("pk"), "audit", INSTALLATION)
    world.keep(Event.objects.latest("pk"), "event", INSTALLATION)
