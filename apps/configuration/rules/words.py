"""Reasons as sentences."""

from django.utils.translation import gettext as _

from apps.configuration.rules.ways import Reason


def reason_words(reason: Reason) -> str:
    """The sentence of a reason, for pages and REST alike."""
    if reason.code == "rule":
        return _rule_words(reason)
    name = reason.on[1]
    facts = {"name": name, "group": reason.group}
    sentences = {
        "administrator": _("Administrators may do everything."),
        "only_administrators": _("Only administrators see nodes: they tell of others' work."),
        "queue_administrator": _("Queue administrators see every queue."),
        "tenant_administrator": _("They administer the tenant to which it belongs."),
        "apart": _("It belongs to another tenant, and no rule reaches there."),
        "policy_group": _("Policy %(name)s gives it to its group %(group)s."),
        "chosen": _("Policy %(name)s is narrowed, and they are among the chosen."),
        "not_chosen": _(
            "They are in group %(group)s, but policy %(name)s is narrowed to other members."
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
        "deactivated": _("The account is deactivated: nobody comes in by it."),
        "elsewhere": _("A group of another tenant gives it."),
        "nothing": _("No rule gives it."),
    }
    return sentences[reason.code] % facts


def _rule_words(reason: Reason) -> str:
    kind, name = reason.on
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
    facts = {"on": on, "group": reason.group, "by": reason.by}
    if reason.group and reason.by:
        return _("A rule on %(on)s for group %(group)s, made by %(by)s.") % facts
    if reason.group:
        return _("A rule on %(on)s for group %(group)s.") % facts
    if reason.by:
        return _("A rule on %(on)s names them, made by %(by)s.") % facts
    return _("A rule on %(on)s names them.") % facts
