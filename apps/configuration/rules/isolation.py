"""Tenant isolation of rules: a rule in the tree of one tenant names nobody of another."""

from collections.abc import Iterable
from dataclasses import replace

from django.contrib.auth.models import Group

from apps.access.isolation import users_isolated_from, users_isolated_from_tenants
from apps.access.levels import RuleKind
from apps.accounts.models import TenantGroup, User
from apps.accounts.selectors import is_admin, tenants_of
from apps.configuration.rules.rule import Rule, Subject, Target
from apps.policies.models import Policy, Queue
from apps.vaults.models import Vault


def other_tenants_subject(target: Target, users: Iterable[User], groups: Iterable[Group]) -> str:
    """The name of a subject of another tenant than the target's; empty if there is none."""
    tenant = _tenant_of(target)
    if tenant is None:
        return ""
    outsiders = users_isolated_from_tenants([tenant]).filter(pk__in=[one.pk for one in users])
    others = TenantGroup.objects.filter(group__in=[one.pk for one in groups])
    others = others.exclude(tenant=tenant).select_related("group")
    names = [one.username for one in outsiders[:1]] + [one.group.name for one in others[:1]]
    return names[0] if names else ""


def without_other_tenants(reader: User, rules: Iterable[Rule]) -> list[Rule]:
    """The rules without names of other tenants than the reader's, in two queries.

    A user may join another tenant after a rule was made; it gives them nothing since.
    """
    known = list(rules)
    named = [one for rule in known for one in (*rule.subjects, *rule.made_by)]
    hidden = subjects_hidden_from(reader, named)
    if not hidden:
        return known
    return [
        replace(
            rule,
            subjects=tuple(one for one in rule.subjects if one not in hidden),
            hidden=tuple(one for one in rule.subjects if one in hidden),
            made_by=tuple(one for one in rule.made_by if one not in hidden),
        )
        for rule in known
    ]


def subjects_hidden_from(reader: User, subjects: Iterable[Subject]) -> frozenset[Subject]:
    """Those of other tenants than the reader's; a reader of no tenant sees all."""
    every, tenants = set(subjects), tenants_of(reader)
    if is_admin(reader) or not tenants or not every:
        return frozenset()
    groups = [one.id for one in every if one.is_group]
    users = [one.id for one in every if not one.is_group]
    others = TenantGroup.objects.filter(group__in=groups).exclude(tenant__in=tenants)
    hidden = {(True, pk) for pk in others.values_list("group", flat=True)}
    outsiders = users_isolated_from(reader).filter(pk__in=users)
    hidden |= {(False, pk) for pk in outsiders.values_list("pk", flat=True)}
    return frozenset(one for one in every if (one.is_group, one.id) in hidden)


def _tenant_of(target: Target) -> int | None:
    if not target.object_id:
        return None
    if target.kind is RuleKind.POLICY:
        return Policy.objects.values_list("tenant", flat=True).get(pk=target.object_id)
    if target.kind is RuleKind.QUEUE:
        return Queue.objects.values_list("policy__tenant", flat=True).get(pk=target.object_id)
    if target.kind is RuleKind.VAULT:
        rows = Vault.objects.filter(pk=target.object_id)
        return rows.values_list("group__belongs__tenant", flat=True).first()
    return None
