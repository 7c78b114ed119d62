"""What is filled in about access rules; services judge it."""

import hashlib
import re
from typing import Any

from django import forms
from django.contrib.auth.models import Group
from django.utils.translation import gettext_lazy as _

from apps.accounts.models import User
from apps.configuration.rules.explaining import Thing
from apps.configuration.rules.granting import (
    groups_nameable_by,
    levels_grantable_by,
    people_nameable_by,
)
from apps.configuration.rules.levels import Kind, Level
from apps.configuration.rules.narrowed import (
    narrowing_version,
    people_choosable_by,
    people_chosen,
)
from apps.configuration.rules.reading import targets_open_to
from apps.configuration.rules.rule import Rule, Target
from apps.configuration.services.rules import Named, named_by
from apps.policies.models import Policy

DIALOG_ID = "dialog_%s"
MOST_CHARS = 400_000
_PLAIN = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class RuleForm(forms.Form):
    """Whom a rule names, on which level; with `rule` one that is there."""

    target = forms.ChoiceField(
        label=_("On"), help_text=_("A right on a policy reaches its queues and their tasks.")
    )
    level = forms.ChoiceField(
        label=_("May"), help_text=_("Each level includes the one before it; exceeding does not.")
    )
    users = forms.CharField(
        label=_("People and service accounts"),
        required=False,
        max_length=MOST_CHARS,
        help_text=_("User names, one per line or with commas between them."),
        widget=forms.Textarea(attrs={"rows": 3, **_PLAIN}),
    )
    groups = forms.ModelMultipleChoiceField(
        Group.objects.none(),
        label=_("Groups"),
        required=False,
        help_text=_("Everybody in them, also who joins later."),
        widget=forms.CheckboxSelectMultiple,
    )
    version = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(
        self, *args: Any, actor: User, rule: Rule | None = None, target: str = "", **given: Any
    ) -> None:
        known = named_by(rule)
        initial: dict[str, Any] = {"target": target}
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
        levels = levels_grantable_by(actor, rule.target) if rule is not None else tuple(Level)
        self.fields["level"].choices = [(one.value, one.label) for one in levels]  # type: ignore[attr-defined]  # as its type says
        if rule is not None:
            del self.fields["target"]
        else:
            self.fields["target"].choices = _targets(actor)  # type: ignore[attr-defined]  # as its type says

    def clean_users(self) -> list[User]:
        names = {name for name in re.split(r"[\s,;]+", self.cleaned_data["users"]) if name}
        found = {one.username: one for one in self.people.filter(username__in=names)}
        found |= {one.username: one for one in self.known.users if one.username in names}
        missing = sorted(names - set(found))
        if missing:
            raise forms.ValidationError(_("There is no %s.") % missing[0])
        return list(found.values())

    def named(self) -> Named:
        """The rows of those who were chosen."""
        return Named(tuple(self.cleaned_data["users"]), tuple(self.cleaned_data["groups"]))

    def chosen_target(self) -> tuple[Kind, str]:
        """Kind and id of what was chosen."""
        kind, _dot, object_id = self.cleaned_data["target"].partition(".")
        return Kind(kind), object_id

    def chosen_level(self) -> Level:
        return Level(self.cleaned_data["level"])


def _targets(actor: User) -> list[Any]:
    """What one may make rules on, by kind."""
    by_kind: dict[Kind, list[Target]] = {}
    for target in targets_open_to(actor):
        by_kind.setdefault(target.kind, []).append(target)
    return [
        (kind.label, [(one.key, _called(one)) for one in targets])
        for kind, targets in by_kind.items()
    ]


def _called(target: Target) -> str:
    """With its kind, for the list shows the chosen one alone."""
    if target.name:
        return f"{target.kind.label} {target.name}"
    every = {
        Kind.POLICY: _("Every policy"),
        Kind.QUEUE: _("Every queue"),
        Kind.POOL: _("Every pool"),
    }
    return str(every[target.kind])


class NarrowingForm(forms.Form):
    """To whom a policy applies."""

    WHOLE, CHOSEN = "whole", "chosen"
    reach = forms.ChoiceField(
        label=_("Applies to"),
        choices=[(WHOLE, _("Its whole group")), (CHOSEN, _("Those chosen below"))],
        widget=forms.RadioSelect,
    )
    people = forms.ModelMultipleChoiceField(
        User.objects.none(), required=False, widget=forms.CheckboxSelectMultiple
    )
    confirmed = forms.CharField(required=False, widget=forms.HiddenInput)
    version = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, actor: User, policy: Policy, **given: Any) -> None:
        chosen = people_chosen(policy)
        initial = {
            "reach": self.CHOSEN if policy.is_narrowed else self.WHOLE,
            "people": list(chosen.values_list("pk", flat=True)),
            "version": narrowing_version(policy),
        }
        super().__init__(*args, **{"auto_id": DIALOG_ID, "initial": initial, **given})
        offered = people_choosable_by(actor, policy)
        self.unseen = chosen.exclude(pk__in=offered.values("pk"))
        self.fields["people"].queryset = offered.order_by("username")  # type: ignore[attr-defined]  # as its type says

    def wanted(self) -> list[User]:
        """Who was chosen here, and those who were before and cannot be shown here."""
        return [*self.cleaned_data["people"], *self.unseen]

    @property
    def selection(self) -> str:
        """Stands for what is chosen now, so that nobody confirms what they did not see."""
        chosen = sorted(one.pk for one in self.wanted())
        text = f"{self.cleaned_data['version']} {self.cleaned_data['reach']} {chosen}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def is_confirmed(self) -> bool:
        return bool(self.cleaned_data["confirmed"] == self.selection)

    @property
    def narrows(self) -> bool:
        return bool(self.cleaned_data["reach"] == self.CHOSEN)


class ExplainForm(forms.Form):
    """Who, and which object."""

    user = forms.CharField(
        label=_("Person or service account"),
        required=False,
        max_length=150,
        widget=forms.TextInput(attrs=_PLAIN),
    )
    kind = forms.ChoiceField(label=_("Kind"), choices=Thing.choices)
    object = forms.CharField(
        label=_("Name or id"), max_length=150, widget=forms.TextInput(attrs=_PLAIN)
    )
