"""Sentences of permission sources."""

from apps.access.source_kind import PermissionSource


def source_sentence(source: PermissionSource) -> str:
    """The sentence of a permission source, for pages and REST alike."""
    if source.code == "rule":
        return _rule_sentence(source)
    name = source.on[1]
    facts = {"name": name, "group": source.group}
    sentences = {
        "administrator": "Administrators may do everything.",
        "only_administrators": "Only administrators see nodes: they reveal others' work.",
        "queue_administrator": "Queue administrators see every queue.",
        "tenant_administrator": "They administer the tenant to which it belongs.",
        "other_tenant": "It belongs to another tenant, which no rule can reach.",
        "policy_group": "Policy %(name)s gives it to its group %(group)s.",
        "policy_member": "Policy %(name)s is restricted, and they are one of its members.",
        "policy_restricted": (
            "They are in group %(group)s, but policy %(name)s is restricted to other members."
        ),
        "connects_profiles": "Administrators of tenants see every profile, to connect it.",
        "by_queue": "They see queue %(name)s, which has this profile.",
        "owner": "It is their own.",
        "open_volume": "The volume is not restricted: everybody may mount it.",
        "open_logs": "Policy %(name)s lets its group %(group)s read each other's logs.",
        "vault_group": "It is a vault of their group %(group)s.",
        "acts": "This service account may act for owners of tasks that it sees.",
        "may_not_act": "This service account may not act for owners of tasks.",
        "cannot_act_now": (
            "It does not see the task, the task is not alive, or its owner is one for whom "
            "nobody acts."
        ),
        "deactivated": "The account is deactivated: nobody can sign in with it.",
        "other_tenants_group": "A group of another tenant gives it.",
        "nothing": "No rule gives it.",
    }
    return sentences[source.code] % facts


def _rule_sentence(source: PermissionSource) -> str:
    kind, name = source.on
    every = {
        "policy": "every policy",
        "queue": "every queue",
        "pool": "every pool",
    }
    single = {
        "policy": "policy %(name)s",
        "queue": "queue %(name)s",
        "pool": "pool %(name)s",
        "vault": "vault %(name)s",
        "volume": "volume %(name)s",
        "task": "task %(name)s",
    }
    on = single[kind] % {"name": name} if name else every[kind]
    if source.group and source.by:
        return f"A rule on {on} for group {source.group}, made by {source.by}."
    if source.group:
        return f"A rule on {on} for group {source.group}."
    if source.by:
        return f"A rule on {on} names them, made by {source.by}."
    return f"A rule on {on} names them."
