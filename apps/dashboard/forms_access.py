"""Forms for access rules; services validate them."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.contrib.auth.models import Group

from apps.access.levels import RESOURCES, Level, RuleKind
from apps.access.rules.delegation import groups_nameable_by, levels_grantable_by, people_nameable_by
from apps.access.rules.rule import Rule, Target
from apps.access.rules.selectors import target_of, targets_open_to
from apps.accounts.models import User
from apps.configuration.access_explanation import ObjectKind
from apps.configuration.restrictions import (
    restrictable_members,
    restricted_members,
    restriction_version,
)
from apps.configuration.services.rules import RuleSubjects, subjects_named_by
from apps.dashboard.forms_base import PageForm
from apps.policies.models import Policy

DIALOG_ID = "dialog_%s"
MOST_CHARS = 400_000
_PLAIN = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


# What a rule lets its subjects do.
PERMITTED: Mapping[RuleKind, Mapping[Level, str]] = {
    RuleKind.POLICY: {
        Level.READ: "see the policy, its queues and their tasks",
        Level.MODIFY: "see the policy and enqueue in its queues",
        Level.MANAGE: "see the policy, enqueue in its queues and manage them",
        Level.EXCEED: "exceed the limit of the policy",
    },
    RuleKind.QUEUE: {
        Level.READ: "see the queue and its tasks",
        Level.MODIFY: "see the queue and enqueue in it",
        Level.MANAGE: "see the queue, enqueue in it and manage it",
    },
    RuleKind.POOL: {Level.READ: "see the pool with its links"},
    RuleKind.VAULT: {
        Level.READ: "read the vault, without secrets",
        Level.MODIFY: "read and change the vault",
    },
    RuleKind.VOLUME: {
        Level.READ: "mount the volume in their tasks, read-only",
        Level.MODIFY: "mount the volume in their tasks as it is, also for checkpoints",
    },
    RuleKind.TASK: {Level.READ: "read the task and its log"},
}


class RuleForm(PageForm):
    """The subjects and level of a rule; with `rule` an existing one."""

    target = forms.ChoiceField(
        label="On", help_text="A permission on a policy covers its queues and their tasks."
    )
    level = forms.ChoiceField(
        label="May", help_text="Each level includes the one before it; exceeding does not."
    )
    users = forms.CharField(
        label="People and service accounts",
        required=False,
        max_length=MOST_CHARS,
        help_text="User names, one per line or with commas between them.",
        widget=forms.Textarea(attrs={"rows": 3, **_PLAIN}),
    )
    groups = forms.ModelMultipleChoiceField(
        Group.objects.none(),
        label="Groups",
        required=False,
        help_text="All members, including later ones.",
        widget=forms.CheckboxSelectMultiple,
    )
    version = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(
        self,
        *args: Any,
        actor: User,
        rule: Rule | None = None,
        target: Target | None = None,
        **given: Any,
    ) -> None:
        known = subjects_named_by(rule)
        initial: dict[str, Any] = {"target": target.key if target is not None else ""}
        if rule is not None:
            initial = {
                "level": rule.level,
                "users": "\n".join(one.username for one in known.users),
                "groups": known.groups,
                "version": rule.version,
            }
        super().__init__(*args, **{"auto_id": DIALOG_ID, "initial": initial, **given})
        self.known = known
        self.people = people_nameable_by(actor)
        teams = groups_nameable_by(actor) | Group.objects.filter(
            pk__in=[one.pk for one in known.groups]
        )
        self.fields["groups"].queryset = teams.order_by("name")  # type: ignore[attr-defined]  # as its type says
        is_of_one = target is not None and not RESOURCES[target.kind].has_few
        at = rule.target if rule is not None else target if is_of_one else None
        levels = levels_grantable_by(actor, at) if at is not None else tuple(Level)
        self.fields["level"].choices = [(one.value, one.label) for one in levels]  # type: ignore[attr-defined]  # as its type says
        if at is not None:
            words = PERMITTED[at.kind]
            self.fields["level"].help_text = " ".join(
                f"{one.label}: {words[one]}." for one in levels
            )
        if rule is not None:
            del self.fields["target"]
        else:
            targets = [at] if at is not None else targets_open_to(actor)
            if at is not None:
                self.fields["target"].help_text = ""
            self.fields["target"].choices = _targets(targets)  # type: ignore[attr-defined]  # as its type says

    def clean_users(self) -> list[User]:
        names = {name for name in re.split(r"[\s,;]+", self.cleaned_data["users"]) if name}
        found = {one.username: one for one in self.people.filter(username__in=names)}
        found |= {one.username: one for one in self.known.users if one.username in names}
        missing = sorted(names - set(found))
        if missing:
            raise forms.ValidationError(f"There is nobody called {missing[0]} whom you may name.")
        return list(found.values())

    def subjects(self) -> RuleSubjects:
        """The rows of those who were chosen."""
        return RuleSubjects(tuple(self.cleaned_data["users"]), tuple(self.cleaned_data["groups"]))

    def chosen_target(self) -> tuple[RuleKind, str]:
        """Kind and id of what was chosen."""
        kind, _dot, object_id = self.cleaned_data["target"].partition(".")
        return RuleKind(kind), object_id

    def chosen_level(self) -> Level:
        return Level(self.cleaned_data["level"])


def named_target(actor: User, key: str) -> Target | None:
    """The target of this key, on which the user may make rules."""
    kind, _dot, object_id = key.partition(".")
    return target_of(actor, RuleKind(kind), object_id) if kind in RuleKind.values else None


def _targets(every: Iterable[Target]) -> list[Any]:
    """The choices of a form, by kind."""
    by_kind: dict[RuleKind, list[Target]] = {}
    for target in every:
        by_kind.setdefault(target.kind, []).append(target)
    return [
        (kind.label, [(one.key, _target_label(one)) for one in targets])
        for kind, targets in by_kind.items()
    ]


def _target_label(target: Target) -> str:
    """With its kind, for the list shows the chosen one alone."""
    if target.name:
        return f"{target.kind.label} {target.name}"
    every = {
        RuleKind.POLICY: "Every policy",
        RuleKind.QUEUE: "Every queue",
        RuleKind.POOL: "Every pool",
    }
    return str(every[target.kind])


class RestrictionForm(PageForm):
    """The people that a policy applies to."""

    WHOLE, RESTRICTED = "whole", "restricted"
    reach = forms.ChoiceField(
        label="Applies to",
        choices=[(WHOLE, "Its whole group"), (RESTRICTED, "Only the members chosen below")],
        widget=forms.RadioSelect,
    )
    people = forms.ModelMultipleChoiceField(
        User.objects.none(), required=False, widget=forms.CheckboxSelectMultiple
    )
    confirmed = forms.CharField(required=False, widget=forms.HiddenInput)
    version = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, actor: User, policy: Policy, **given: Any) -> None:
        chosen = restricted_members(policy)
        initial = {
            "reach": self.RESTRICTED if policy.is_restricted else self.WHOLE,
            "people": list(chosen.values_list("pk", flat=True)),
            "version": restriction_version(policy),
        }
        super().__init__(*args, **{"auto_id": DIALOG_ID, "initial": initial, **given})
        offered = restrictable_members(actor, policy)
        self.unseen = chosen.exclude(pk__in=offered.values("pk"))
        self.fields["people"].queryset = offered.order_by("username")  # type: ignore[attr-defined]  # as its type says

    def wanted(self) -> list[User]:
        """Who was chosen here, and those who were before and cannot be shown here."""
        return [*self.cleaned_data["people"], *self.unseen]

    @property
    def selection(self) -> str:
        """Identifies the current choice, so that a user confirms only what they saw."""
        chosen = sorted(one.pk for one in self.wanted())
        text = f"{self.cleaned_data['version']} {self.cleaned_data['reach']} {chosen}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def is_confirmed(self) -> bool:
        return bool(self.cleaned_data["confirmed"] == self.selection)

    @property
    def is_restricting(self) -> bool:
        return bool(self.cleaned_data["reach"] == self.RESTRICTED)


class ExplainForm(PageForm):
    """A person and an object."""

    user = forms.CharField(
        label="Person or service account",
        required=False,
        max_length=150,
        widget=forms.TextInput(attrs=_PLAIN),
    )
    kind = forms.ChoiceField(label="Kind", choices=ObjectKind.choices)
    object = forms.CharField(
        label="Name or id", max_length=150, widget=forms.TextInput(attrs=_PLAIN)
    )
