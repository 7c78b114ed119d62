"""Sentences of permission sources."""

from django.utils.translation import gettext as _

from apps.configuration.rules.permission_sources import PermissionSource


def source_sentence(source: PermissionSource) -> str:
    """The sentence of a permission source, for pages and REST alike."""
    if source.code == "rule":
        return _rule_sentence(source)
    name = source.on[1]
    facts = {"name": name, "group": source.group}
    sentences = {
        "administrator": _("Administrators may do everything."),
        "only_administrators": _("Only administrators see nodes: they reveal others' work."),
        "queue_administrator": _("Queue administrators see every queue."),
        "tenant_administrator": _("They administer the tenant to which it belongs."),
        "other_tenant": _("It belongs to another tenant, which no rule can reach."),
        "policy_group": _("Policy %(name)s gives it to its group %(group)s."),
        "policy_member": _("Policy %(name)s is restricted, and they are one of its members."),
        "policy_restricted": _(
            "They are in group %(group)s, but policy %(name)s is restricted to other members."
        ),
        "connects_profiles": _("Administrators of tenants see every profile, to connect it."),
        "by_queue": _("They see queue %(name)s, which has this profile."),
        "owner": _("It is their own."),
        "open_logs": _("Policy %(name)s lets its group %(group)s read each other's logs."),
        "vault_group": _("It is a vault of their group %(group)s."),
        "acts": _("This service account may act for owners of tasks that it sees."),
        "may_not_act": _("This service account may not act for owners of tasks."),
        "cannot_act_now": _(
            "It does not see the task, the task is not alive, or its owner is one for whom "
            "nobody acts."
        ),
        "deactivated": _("The account is deactivated: nobody can sign in with it."),
        "other_tenants_group": _("A group of another tenant gives it."),
        "nothing": _("No rule gives it."),
    }
    return sentences[source.code] % facts


def _rule_sentence(source: PermissionSource) -> str:
    kind, name = source.on
    every = {
        "policy": _("every policy"),
        "queue": _("every queue"),
        "pool": _("every pool"),
    }
    single = {
        "policy": _("policy %(name)s"),
        "queue": _("queue %(name)s"),
        "pool": _("pool %(name)s"),
        "vault": _("vault %(name)s"),
    }
    on = single[kind] % {"name": name} if name else every[kind]
    facts = {"on": on, "group": source.group, "by": source.by}
    if source.group and source.by:
        return _("A rule on %(on)s for group %(group)s, made by %(by)s.") % facts
    if source.group:
        return _("A rule on %(on)s for group %(group)s.") % facts
    if source.by:
        return _("A rule on %(on)s names them, made by %(by)s.") % facts
    return _("A rule on %(on)s names them.") % facts
