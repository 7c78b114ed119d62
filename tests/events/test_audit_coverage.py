"""Every action of a person has an entry in the audit log, or is listed here with a reason.

The walk finds every public function in the services of all apps that takes an actor. Each has a
real call below, or is on the short list of the plain life of a task.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group

import apps
from apps.access.levels import Level
from apps.accounts.models import Credential, Tenant, User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.invitations import person_invite
from apps.accounts.services.people import user_create
from apps.accounts.services.service_accounts import service_account_create
from apps.configuration.models import Revision
from apps.configuration.selectors import draft_document
from apps.configuration.services.tenants import tenant_create
from apps.events.models import AuditEntry
from apps.nodes.models import Installation, Node, NodeState, Transport, Volume
from apps.policies.models import DraftPool, Profile, Queue
from apps.policies.services import registry_credential_save
from apps.tasks.models import Task
from apps.tasks.services.enqueue.submission import task_create, task_submit
from apps.tasks.task_spec import TaskSpec
from tests.events import audit_examples as given
from tests.people import Example

# The first of these parameters of a service is the actor.
ACTING = ("actor", "user")
PASSWORD = "hunter2 that nobody guesses"
# The plain life of a task is in its timeline; what users do to another user's task is audited
# (test_what_somebody_does_to_anothers_task_is_audited).
# fmt: off
TASK_LIFE = frozenset({
    "task_create", "task_change", "task_submit", "task_enqueue", "task_return",
    "tasks_enqueue_many", "tasks_act", "task_set_dependencies", "task_dequeue", "task_hold",
    "task_release", "task_abort", "task_run_again", "task_resume", "task_set_priority",
    "task_reorder", "task_change_queue", "task_checkpoint", "owner_tasks_dequeue",
    "unstarted_tasks_abort", "draft_delete",
})
ONLY_ASK = (
    "can_manage_queue", "check_can_manage_task", "document_preview", "draft_preview", "email_check",
    "excess_groups_of", "groups_in_tenant", "is_tenant_admin_only", "may_manage", "may_release",
    "password_check", "person_lock", "policy_change_preview", "policy_count_check",
    "policy_create_preview", "policy_tenant_check", "profiles_to_connect", "queue_lock",
    "queue_open_to", "queue_ref", "queue_refs", "queues_lock", "stays_in_tenant_check",
    "task_check", "tasks_returned_by_change", "tasks_returned_by_restriction",
    "tenant_amounts_check", "queue_settings_check", "invitation_check", "queue_settings_of",
    "configuration_diff", "configuration_export", "configuration_version", "rule_entries",
    "others_lock", "mail_text", "zone_of",
)
# fmt: on
# Parts of other services, which record; and what changes nothing.
PARTS = {
    "draft_save_record": "records itself; its callers are walked",
    "queues_close": "records itself; its callers are walked",
    "change_record": "records itself; its callers are walked",
    "array_run_again": "records as task_submit does; its caller is task_run_again",
    "revision_add": "its caller records",
    "event_record": "is the recording",
    "audit_record": "is the recording",
    "policy_grants_sync": "its callers record",
    "levels_set": "its callers record",
    "person_sign_in_note": "only when somebody was here last",
    "person_activity_note": "only when somebody was here last",
    "session_note": "only where somebody was here last",
    "person_save": "its callers record",
    "person_record": "records itself; its callers are walked",
    "group_joins_tenant": "its caller records",
    "notices_mark_read": "only what the user has read",
    "checked_vault_change": "records itself; its callers are walked",
    "checked_vault_restore": "records itself; its callers are walked",
    "checked_vault_switch": "records itself; its callers are walked",
    "checked_vault_move": "records itself; its callers are walked",
    "checked_vault_remove": "records itself; its callers are walked",
    **dict.fromkeys(ONLY_ASK, "only asks"),
}


def services() -> dict[str, Callable[..., Any]]:
    """Public functions of all service modules that take an actor, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for module in _modules():
        for name, function in inspect.getmembers(module, inspect.isfunction):
            is_own = function.__module__ == module.__name__
            if not is_own or name.startswith("_"):
                continue
            if acting(function):
                found[name] = function
    return found


def acting(function: Callable[..., Any]) -> str:
    """The name of its parameter for the actor; empty if there is none."""
    names = inspect.signature(function).parameters
    return next((name for name in ACTING if name in names), "")


def _modules() -> Iterator[Any]:
    for one in pkgutil.walk_packages(apps.__path__, "apps."):
        if ".services" in one.name:
            yield importlib.import_module(one.name)


def test_the_walk_finds_what_there_is() -> None:
    found = services()

    assert len(found) > 30
    assert {"policy_create", "node_pause", "task_abort"} <= set(found)


def test_every_service_is_called_here_or_stands_on_a_list() -> None:
    known = {*CALLS, *TASK_LIFE, *PARTS, *ELSEWHERE}

    assert sorted(set(services()) - known) == []


def test_the_lists_name_nothing_that_is_gone() -> None:
    assert sorted({*CALLS, *TASK_LIFE} - set(services())) == []


# Services whose own tests show their audit entry, because a call needs more than is made here.
_NODES = ["node_add", "node_edit", "node_rekey", "node_remove", "node_ask_removal", "node_drop"]
_VAULTS = [f"vault_{verb}" for verb in ("create", "change", "restore", "switch", "move", "remove")]
_FILES = ["configuration_apply", "new_policies_of_pools_create", "policies_apply", "groups_apply"]
_FILES += ["policies_remove", "queues_apply", "queues_remove", "orders_apply", "rules_apply"]
ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(_NODES, "tests/execution"),
    **dict.fromkeys(_VAULTS, "tests/vaults"),
    **dict.fromkeys(_FILES, "tests/configuration/api/test_files.py"),
    "session_end": "tests/accounts",
    "sessions_end_others": "tests/accounts",
    "provider_create": "tests/accounts",
    "provider_change": "tests/accounts",
    "provider_remove": "tests/accounts",
    "log_in_rules_change": "tests/accounts",
    "memberships_sync": "tests/accounts",
    "group_leave": "tests/accounts/test_profile.py",
    "stream_target": "tests/end_to_end/test_streams.py",
}
Call = Callable[[User, Example], dict[str, Any]]


def _node(**facts: Any) -> Node:
    return Node.objects.create(name="n1", transport=Transport.LOCAL, **facts)


def _restored() -> dict[str, Any]:
    Installation.objects.update_or_create(id=1, defaults={"restored_at": "2026-01-01T00:00:00Z"})
    return {}


def _registry(root: User, example: Example) -> Any:
    return registry_credential_save(
        actor=root,
        group=example.dev.group,
        registry="r.example.org",
        username="u",
        password="hunter2-of-the-registry",
    )


def _other_profile(root: User, example: Example) -> Any:
    return Profile.objects.get(name="2xGPU")


CALLS: dict[str, Call] = {
    "policy_create": lambda root, x: {"name": "New", "group": x.dev.group, "limit": {"gpu": 2}},
    "policy_change": lambda root, x: {"policy": x.dev, "changes": {"weight": 3}},
    "policy_set_amounts": lambda root, x: {"policy": x.dev, "reserved": {}, "limit": {"gpu": 3}},
    "policy_move": lambda root, x: {"policy": x.dev, "parent": None, "group": x.research.group},
    "policy_remove": lambda root, x: {"policy": x.dev},
    "rate_create": lambda root, x: given.RATE,
    "use_threshold_set": lambda root, x: {"gpu_percent": 80},
    "rate_remove": lambda root, x: {"rate": given.rate_of(root)},
    "tenant_create": lambda root, x: {"top": x.dev, "admin_group": x.dev.group},
    "tenant_change": lambda root, x: {"tenant": _tenant(root, x), "groups": [x.research.group]},
    "tenant_remove": lambda root, x: {"tenant": _tenant(root, x)},
    "policy_set_exceeders": lambda root, x: {"policy": x.dev, "users": [root], "groups": []},
    "policy_restrict": lambda root, x: {"policy": x.dev, "people": []},
    "policy_unrestrict": lambda root, x: {"policy": given.restricted_policy(root, x)},
    "rule_grant": given.new_rule,
    "rule_change": lambda root, x: {
        "target": given.target_with_rule(root, x),
        "level": Level.READ,
        "new_level": Level.MANAGE,
        "subjects": given.named_root(root),
    },
    "rule_remove": lambda root, x: {"target": given.target_with_rule(root, x), "level": Level.READ},
    "policy_pause": lambda root, x: {"policy": x.dev, "reason": "because"},
    "policy_resume": lambda root, x: {"policy": x.dev},
    "pool_pause": lambda root, x: {"pool": x.h100, "reason": "because"},
    "pool_resume": lambda root, x: {"pool": x.h100},
    "profile_connect": lambda root, x: {"policy": x.dev, "profile": _other_profile(root, x)},
    "profile_disconnect": lambda root, x: {"queue": x.dev_queue},
    "queue_change": lambda root, x: {"queue": x.dev_queue, "changes": {"max_priority": 5}},
    "queue_rename": lambda root, x: {"queue": x.dev_queue, "name": "another"},
    "queue_pause": lambda root, x: {"queue": x.dev_queue, "reason": "because"},
    "queue_resume": lambda root, x: {"queue": x.dev_queue},
    "queue_reorder": lambda root, x: {
        "profile": x.profile,
        "order": list(Queue.objects.filter(profile=x.profile).order_by("-queuing_rank")),
    },
    "resource_management_switch": lambda root, x: {"is_enabled": False},
    "document_provision": lambda root, x: {"note": "again"},
    "draft_write": lambda root, x: {"document": draft_document()},
    "draft_reset": lambda root, x: {},
    "draft_rows_save": lambda root, x: {"rows": [DraftPool(name="Pool 3", capacity={"gpu": "1"})]},
    "revision_restore": lambda root, x: {"revision": _revision()},
    "node_pause": lambda root, x: {"node": _node(), "reason": "because"},
    "node_resume": lambda root, x: {"node": _node()},
    "node_drain": lambda root, x: {"node": _node()},
    "node_declare_off": lambda root, x: {"node": _node(state=NodeState.SUSPECT), "reason": "gone"},
    "node_dismiss_serial": lambda root, x: {"node": _node(serial_refused_at="2026-01-01T00:00Z")},
    "node_change": lambda root, x: {"node": _node(), "values": {"name": "n2"}},
    "volume_create": lambda root, x: {"values": {"name": "data", "path": "/srv/data"}},
    "volume_change": lambda root, x: {
        "volume": Volume.objects.create(name="data", path="/srv/data"),
        "values": {"description": "of all"},
    },
    "volume_remove": lambda root, x: {"volume": Volume.objects.create(name="d", path="/srv/d")},
    "maintenance_plan": lambda root, x: {"hours": 2},
    "restore_confirm": lambda root, x: _restored(),
    "task_set_idle_exemption": given.idle_exemption,
    "registry_credential_save": lambda root, x: {
        "group": x.dev.group,
        "registry": "r.example.org",
        "username": "u",
        "password": "hunter2-of-the-registry",
    },
    "registry_credential_remove": lambda root, x: {"credential": _registry(root, x)},
    "notice_settings_change": lambda root, x: {"changes": {"digest": "daily"}},
    "notice_rule_create": lambda root, x: {"scope": "own", "kinds": ["failed"]},
    "notice_rule_change": lambda root, x: {
        "rule": given.notice_rule(root),
        "changes": {"kinds": ["ended"]},
    },
    "notice_rule_remove": lambda root, x: {"rule": given.notice_rule(root)},
    "credential_create": lambda root, x: {"user": root, "label": "mine"},
    "credential_revoke": lambda root, x: {
        "credential": credential_create(user=root, label="mine")[0],
        "is_admin": True,
    },
    "credential_change": lambda root, x: {"credential": _credential(root), "label": "new"},
    "credentials_revoke_all": lambda root, x: {"user": _credential(root).user},
    "preferences_change": lambda root, x: {"redacted_variables": ["WANDB_*"]},
    "profile_change": lambda root, x: {"changes": {"first_name": "Ruth"}},
    "password_change": lambda root, x: {
        "user": _with_password(root),
        "current_password": PASSWORD,
        "new_password": f"another {PASSWORD}",
    },
    "group_save": lambda root, x: {"group": Group(name="new"), "description": "d", "members": []},
    "group_remove": lambda root, x: {"group": Group.objects.create(name="new")},
    "group_members_add": lambda root, x: {"group": x.dev.group, "users": [root]},
    "group_members_remove": lambda root, x: {"group": x.dev.group, "users": [_member(x)]},
    "user_groups_set": lambda root, x: {"user": _member(x), "groups": [x.research.group]},
    "person_invite": lambda root, x: {"address": str, "username": "new", "groups": [x.dev.group]},
    "invitation_renew": lambda root, x: {"user": _invited(root), "address": str},
    "invitation_revoke": lambda root, x: {"user": _invited(root)},
    "person_change": lambda root, x: {"user": _member(x), "changes": {"first_name": "Ruth"}},
    "person_set": lambda root, x: {"user": _member(x), "changes": {"unix_uid": 1234}},
    "person_deactivate": lambda root, x: {"user": _member(x)},
    "person_activate": lambda root, x: {"user": _member(x, is_active=False)},
    "person_leave_waiting": lambda root, x: {"user": _member(x, is_active=False)},
    "service_account_create": lambda root, x: {"name": "ci", "groups": ["dev"]},
    "service_account_change": lambda root, x: {"account": _account(root), "name": "ci-2"},
    "service_account_remove": lambda root, x: {"account": _account(root)},
}


def _tenant(root: User, example: Example) -> Tenant:
    made: Tenant = tenant_create(actor=root, top=example.dev, admin_group=example.dev.group)
    return made


def _credential(root: User) -> Credential:
    made: Credential = credential_create(user=root, label="mine")[0]
    return made


def _with_password(user: User) -> User:
    user.set_password(PASSWORD)
    user.save()
    return user


def _member(example: Example, **facts: Any) -> User:
    user = user_create(username="somebody", password=None, groups=[example.dev.group.name])
    User.objects.filter(pk=user.pk).update(username=user.username, **facts)
    user.refresh_from_db()
    return user


def _invited(root: User) -> User:
    return person_invite(actor=root, address=str, username="invited").user


def _account(root: User) -> User:
    service_account_create(actor=root, name="ci")
    return User.objects.get(username="ci")


def _revision() -> Any:
    module = importlib.import_module("apps.configuration.models")
    return module.Revision.objects.order_by("number").first()


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(CALLS))
def test_who_does_it_stands_in_the_audit_log(name: str, root: User, example: Example) -> None:
    service = services()[name]
    arguments = CALLS[name](root, example)
    before = set(AuditEntry.objects.values_list("pk", flat=True))

    service(**{acting(service): root, **arguments})

    made = AuditEntry.objects.exclude(pk__in=before)
    assert made.filter(actor_id=root.pk).exists(), f"{name} leaves no audit entry"
    assert "hunter2" not in str(list(made.values()))


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "policy_restrict": ({"applies_to": "group dev"}, {"applies_to": []}),
    "rule_change": ({"read": ["user root"]}, {"manage": ["user root"]}),
    "policy_change": ({"weight": 1}, {"weight": 3}),
    "policy_set_amounts": ({"limit": {"gpu": "16"}}, {"limit": {"gpu": "3"}}),
    "queue_pause": ({"is_paused": False}, {"is_paused": True}),
    "pool_pause": ({"is_paused": False}, {"pause_reason": "because"}),
    "resource_management_switch": ({"is_enabled": True}, {"is_enabled": False}),
    "node_change": ({"name": "n1"}, {"name": "n2"}),
    "volume_change": ({"description": ""}, {"description": "of all"}),
    "tenant_change": ({"groups": ["dev"]}, {"groups": ["dev", "research"]}),
    "policy_set_exceeders": ({"may_exceed_users": []}, {"may_exceed_users": ["root"]}),
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_an_entry_says_what_was_before_and_is_after(
    name: str, root: User, example: Example
) -> None:
    arguments = CALLS[name](root, example)

    services()[name](actor=root, **arguments)

    entry = AuditEntry.objects.order_by("-id")[0]
    want_before, want_after = CHANGES[name]
    assert want_before.items() <= entry.before.items()
    assert want_after.items() <= entry.after.items()


@pytest.mark.django_db
def test_provisioning_says_each_field_that_went_live(root: User, example: Example) -> None:
    pool = DraftPool.objects.get(name="H100 Half a Superpod")
    pool.capacity = {"gpu": "12"}

    services()["draft_rows_save"](actor=root, rows=[pool])
    services()["document_provision"](actor=root, note="More GPUs.")

    entry = AuditEntry.objects.get(verb="configuration.provisioned", reason="More GPUs.")
    key = "pool H100 Half a Superpod capacity"
    assert (entry.before[key], entry.after[key]) == ({"gpu": "8"}, {"gpu": "12"})
    assert entry.object_id == str(Revision.objects.latest("number").number)


@pytest.mark.django_db
def test_what_somebody_does_to_anothers_task_is_audited(
    root: User, alice: User, example: Example
) -> None:
    queue = example.dev_queue.name
    described = TaskSpec(name="hers", queue=queue, command=["true"])
    task = task_submit(actor=alice, spec=described)
    task_create(actor=alice, spec=TaskSpec(name="draft", command=["true"]))
    assert not AuditEntry.objects.filter(actor_id=alice.pk).exists()

    services()["task_dequeue"](actor=root, task=Task.objects.get(pk=task.pk))

    entry = AuditEntry.objects.get(object_type="task")
    assert (entry.verb, entry.actor, entry.object_id) == ("task.draft", "root", str(task.pk))


@pytest.mark.django_db
def test_groups_of_a_policy_are_named_as_they_were(root: User, example: Example) -> None:
    services()["policy_move"](
        actor=root, policy=example.dev, parent=None, group=example.research.group
    )
    Group.objects.filter(name="research").update(name="renamed later")

    entry = AuditEntry.objects.get(verb="policy.changed")
    assert (entry.before["group"], entry.after["group"]) == ("dev", "research")
