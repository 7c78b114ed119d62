"""What uses a group: its policies, and the permissions that were given to it.

Grants of every kind are found by their foreign key to the group, so that a new kind is counted
from its first day on.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db.models import F, Q, QuerySet, Value
from guardian.models import GroupObjectPermissionBase

from apps.access.levels import RESOURCES
from apps.access.selectors import policies_visible_to, pools_visible_to, queues_visible_to
from apps.access.vaults import vaults_visible_to
from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource
from apps.accounts.selectors import LogInUse, is_admin, log_in_use
from apps.nodes.selectors import volumes_visible_to
from apps.policies.models import Policy
from apps.tasks.selectors.visibility import tasks_visible_to
from apps.vaults.models import Vault

MOST_SHOWN = 200
# What a reader sees, by model.
Visible = Mapping[type[Any], QuerySet[Any]]


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """The permissions of a group on one object; `by_policy`: its policy gives them by itself.

    `object_id` is empty for every object of the kind.
    """

    kind: str
    object_id: str
    name: str
    permissions: tuple[str, ...]
    by_policy: bool


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """`policies` and `vaults` keep the group from being removed; `removed` ones, too: history and
    tasks name them.

    `rules` are deleted with it, and so is its use by log-ins: `log_in`, which keeps the group if
    `is_log_in_kept`.
    """

    policies: tuple[Policy, ...]
    removed: tuple[Policy, ...]
    vaults: tuple[Vault, ...]
    removed_vaults: tuple[Vault, ...]
    rules: tuple[GroupGrant, ...]
    log_in: LogInUse
    is_log_in_kept: bool

    @property
    def blocks_removal(self) -> bool:
        """Whether the group cannot be removed."""
        kept = self.policies or self.removed or self.vaults or self.removed_vaults
        return bool(kept or (self.log_in and self.is_log_in_kept))

    @property
    def made_by_people(self) -> tuple[GroupGrant, ...]:
        """The rules that people made."""
        return tuple(rule for rule in self.rules if not rule.by_policy)


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """The numbers of policies and of people's rules that use the group."""

    policies: int = 0
    rules: int = 0


def group_usage(group: Group, *, reader: User | None = None) -> GroupUsage:
    """Everything that uses the group, in a query per kind of object.

    Args:
        reader: an administrator of a tenant gets only the objects that they see.
    """
    policies = list(Policy.objects.filter(group=group).order_by("name", "pk"))
    vaults = list(Vault.objects.filter(group=group).order_by("name", "pk"))
    is_of_tenant = reader is not None and not is_admin(reader)
    visible = _visible_to(reader) if reader is not None and is_of_tenant else None
    rules = [rule for model in grant_models() for rule in _grants(model, group, visible)]
    if visible is None:
        rules += _kind_grants(group)
    return GroupUsage(
        policies=tuple(policy for policy in policies if not policy.is_removed),
        removed=tuple(policy for policy in policies if policy.is_removed),
        vaults=tuple(vault for vault in vaults if vault.removed_at is None),
        removed_vaults=tuple(vault for vault in vaults if vault.removed_at is not None),
        rules=tuple(sorted(rules, key=lambda rule: (rule.kind, rule.name, rule.object_id))),
        log_in=log_in_use(group),
        is_log_in_kept=is_of_tenant,
    )


def group_counts(
    group_ids: Iterable[int], *, reader: User | None = None
) -> Mapping[int, GroupCounts]:
    """Counts for the lists of groups, in a query per kind of object.

    Args:
        reader: for an administrator of a tenant rules on objects that they see are counted.
    """
    visible = _visible_to(reader) if reader is not None and not is_admin(reader) else None
    ids = list(group_ids)
    live = Policy.objects.filter(group__in=ids, removed_at__isnull=True)
    policies = Counter(live.values_list("group_id", flat=True))
    rules: Counter[int] = Counter()
    for model in grant_models():
        rows = model._default_manager.filter(group__in=ids)
        if _has_source(model):
            rows = rows.exclude(source=GrantSource.POLICY)
        if visible is not None:
            about = model._meta.get_field("content_object").related_model
            rows = rows.filter(content_object__in=visible[about].values("pk"))
        pairs = rows.order_by().values_list("group_id", "content_object_id").distinct()
        rules.update(group_id for group_id, _ in pairs)
    if visible is not None:
        return {pk: GroupCounts(policies[pk], rules[pk]) for pk in ids}
    kinds = Permission.objects.filter(_is_of_rules(), group__in=ids).order_by()
    pairs = kinds.values_list("group", "content_type").distinct()
    rules.update(group_id for group_id, _ in pairs)
    return {pk: GroupCounts(policies[pk], rules[pk]) for pk in ids}


def grant_models() -> list[type[Any]]:
    """The tables of permissions of groups on single objects."""
    found = [relation.related_model for relation in Group._meta.related_objects]
    return [
        model
        for model in found
        if issubclass(model, GroupObjectPermissionBase)
        and any(field.name == "content_object" for field in model._meta.fields)
    ]


def _visible_to(reader: User) -> Visible:
    """What the reader sees of everything that rules are about."""
    rows: list[QuerySet[Any]] = [
        policies_visible_to(reader),
        queues_visible_to(reader),
        pools_visible_to(reader),
        vaults_visible_to(reader),
        tasks_visible_to(reader),
        volumes_visible_to(reader),
    ]
    return {one.model: one for one in rows}


def _grants(model: type[Any], group: Group, visible: Visible | None) -> list[GroupGrant]:
    """Its permissions on single objects, of which only the names are read."""
    about = model._meta.get_field("content_object").related_model
    kind = str(about._meta.verbose_name)
    rows = model._default_manager.filter(group=group)
    if visible is not None:
        rows = rows.filter(content_object__in=visible[about].values("pk"))
    source = F("source") if _has_source(model) else Value(GrantSource.PERSON)
    columns = ("content_object_id", "content_object__name", "permission__codename", source)
    permissions: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for pk, name, codename, made_by in rows.order_by("pk").values_list(*columns):
        key = str(pk), str(name), made_by == GrantSource.POLICY
        permissions[key].append(_word(codename, kind))
    return [
        GroupGrant(kind, object_id, name, tuple(sorted(words)), by_policy)
        for (object_id, name, by_policy), words in permissions.items()
    ]


def _kind_grants(group: Group) -> list[GroupGrant]:
    """Its permissions on every object of a kind."""
    permissions: dict[str, list[str]] = defaultdict(list)
    found = Permission.objects.filter(_is_of_rules(), group=group)
    for codename, kind in found.values_list("codename", "content_type__model"):
        permissions[kind].append(_word(codename, kind))
    return [
        GroupGrant(kind, "", f"every {kind}", tuple(sorted(words)), by_policy=False)
        for kind, words in permissions.items()
    ]


def _is_of_rules() -> Q:
    """Permissions of models that are rules on a whole kind."""
    known = [one for one in RESOURCES.values() if one.has_kind_rules]
    names = {name for one in known for level in one.verbs for name in one.codenames(level)}
    return Q(content_type__app_label="policies", codename__in=names)


def _word(codename: str, kind: str) -> str:
    """`enqueue_queue` is `enqueue`, where it is about a queue anyway."""
    return codename.removesuffix(f"_{kind.replace(' ', '')}").replace("_", " ")


def _has_source(model: type[Any]) -> bool:
    return any(field.name == "source" for field in model._meta.fields)
