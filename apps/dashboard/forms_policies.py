"""Forms for policies; services validate them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import Group

from apps.access.selectors import policies_administered_by
from apps.accounts.models import User
from apps.accounts.selectors import groups_visible_to, is_admin
from apps.configuration.services.limits import ConnectableProfile
from apps.configuration.services.policies import amounts_of
from apps.core.units import BUILT_IN_KEYS, UNITS
from apps.dashboard.forms_base import ConflictCheckForm, PageForm
from apps.policies.budgets import decimal_text
from apps.policies.models import Policy, Queue
from apps.policies.models.bases import NAME_LENGTH
from apps.policies.models.policies import LEAST_BUDGET
from apps.policies.selectors import known_keys, policy_family

KINDS = {"reserved": "Reservation", "limit": "Limit", "user_limit": "Limit per user"}
# Rarely touched, with what they usually are.
SPECIAL = {
    "weight": 1,
    "is_strict": False,
    "logs_open_to_group": False,
    "budget": None,
    "budget_stops": False,
}
PLAIN = ("name", "description", "group", "parent", *SPECIAL)
# The page of a dialog has a form with a name, too.
DIALOG_ID = "dialog_%s"
_AMOUNT = {"inputmode": "decimal", "autocomplete": "off", "spellcheck": "false"}


@dataclass(frozen=True, slots=True)
class AmountRow:
    """The fields of one resource key."""

    reserved: forms.BoundField
    limit: forms.BoundField
    user_limit: forms.BoundField


class PolicyForm(ConflictCheckForm):
    """A policy's values; without `policy` those of a new one."""

    name = forms.CharField(
        label="Name",
        max_length=NAME_LENGTH,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    group = forms.ModelChoiceField(
        Group.objects.none(), label="Group", help_text="Its members may use the queues."
    )
    parent = forms.ModelChoiceField(
        Policy.objects.none(),
        label="Parent",
        required=False,
        empty_label="None: at the top",
        help_text="The policy above shares its reservation and limits it.",
    )
    description = forms.CharField(
        label="Description",
        required=False,
        max_length=10_000,
        widget=forms.Textarea(attrs={"rows": 2}),
    )

    weight = forms.IntegerField(
        label="Weight",
        min_value=0,
        max_value=1_000_000,
        initial=1,
        help_text="Its share of capacity beyond reservations; 0: none.",
    )
    is_strict = forms.BooleanField(
        label="Strict order",
        required=False,
        help_text="No task starts before an earlier one of this policy.",
    )
    logs_open_to_group = forms.BooleanField(
        label="Logs open to the group",
        required=False,
        help_text="Its people may read each other's logs.",
    )
    budget = forms.DecimalField(
        label=f"Budget per month, {settings.RPM_CURRENCY}",
        required=False,
        max_digits=12,
        decimal_places=4,
        min_value=LEAST_BUDGET,
        help_text="What it may cost, with the policies below it. Empty: any amount.",
    )
    budget_stops = forms.BooleanField(
        label="Stop at the budget",
        required=False,
        help_text="Once it is spent, no task starts until the next month.",
    )

    def __init__(
        self, *args: Any, actor: User, policy: Policy | None = None, **kwargs: Any
    ) -> None:
        self.policy = policy
        self.known = _values_of(policy) if policy is not None else {}
        if policy is not None:
            kwargs.setdefault("initial", _initial(self.known))
        super().__init__(*args, **kwargs)
        groups, parents = self.fields["group"], self.fields["parent"]
        # Read again with every form, so that a group made a second ago is among them.
        groups.queryset = groups_visible_to(actor).order_by("name")  # type: ignore[attr-defined]  # a ModelChoiceField
        parents.queryset = _parents(actor, policy)  # type: ignore[attr-defined]  # a ModelChoiceField
        # In a tenant everything is below its top.
        parents.required = not is_admin(actor)
        self.keys = _keys(self.known)
        for key in self.keys:
            unit = UNITS.get(key, key)
            for kind, label in KINDS.items():
                self.fields[f"{kind}.{key}"] = forms.CharField(
                    label=f"{label}, {unit}",
                    required=False,
                    max_length=32,
                    widget=forms.TextInput(attrs=_AMOUNT),
                )
        for field in self.fields.values():
            # What the form was filled with, so that what others changed meanwhile is noticed.
            field.show_hidden_initial = policy is not None

    @property
    def amounts(self) -> list[AmountRow]:
        """The fields of reservation and limit, key by key."""
        return [
            AmountRow(self[f"reserved.{key}"], self[f"limit.{key}"], self[f"user_limit.{key}"])
            for key in self.keys
        ]

    @property
    def has_special(self) -> bool:
        """Whether a setting that is rarely touched has an error, or more than its default."""
        special = [*SPECIAL, *(f"user_limit.{key}" for key in self.keys)]
        if any(name in self.errors for name in special):
            return True
        return any(
            self.initial.get(name, default) != default for name, default in SPECIAL.items()
        ) or bool(self.known.get("user_limit"))

    def values(self) -> dict[str, Any]:
        """What `policy_create` takes."""
        given = self.cleaned_data
        values = {name: given[name] for name in self.fields if "." not in name}
        for kind in KINDS:
            amounts = {key: given[f"{kind}.{key}"].strip() for key in self.keys}
            values[kind] = {key: text for key, text in amounts.items() if text}
        return values

    def changes(self) -> dict[str, Any]:
        """Of `values`, what was typed and differs from the policy."""
        typed = {name.partition(".")[0] for name in self.changed_data}
        values = self.values()
        for name in self.fields.keys() - set(self.changed_data):
            kind, _dot, key = name.partition(".")
            if key and kind in typed:
                # Another key of the same kind was typed: this one stays as it is by now.
                values[kind].pop(key, None)
                if key in self.known[kind]:
                    values[kind][key] = self.known[kind][key]
        return {name: values[name] for name in typed if values[name] != self.known[name]}


class ConnectForm(PageForm):
    """A profile for a policy, and the name of the queue in between; further profiles as well."""

    profile = forms.ChoiceField(label="Profile")
    name = forms.CharField(
        label="Queue name",
        help_text="People and programs enqueue under this name. Small letters, digits, . _ -",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    others = forms.MultipleChoiceField(label="Also connect", required=False)

    def __init__(self, *args: Any, profiles: Sequence[ConnectableProfile], **kw: Any) -> None:
        super().__init__(*args, **{"auto_id": DIALOG_ID, **kw})
        possible = [p.profile for p in profiles if not p.problem]
        self.fields["others"] = forms.MultipleChoiceField(
            label="Also connect",
            required=False,
            choices=[(str(one.pk), one.name) for one in possible] if len(possible) > 1 else [],
            widget=forms.CheckboxSelectMultiple,
        )
        self.fields["profile"] = forms.ChoiceField(
            label="Profile",
            choices=[(str(p.profile.pk), p.problem or p.profile.name) for p in profiles],
            widget=_SomeDisabled(frozenset(str(p.profile.pk) for p in profiles if p.problem)),
        )

    def wanted_others(self) -> list[int]:
        """Ids of the further profiles, without the one that has a name here."""
        named = self.cleaned_data["profile"]
        return [int(one) for one in self.cleaned_data["others"] if one != named]


class DeleteForm(PageForm):
    """The name again, to prevent deletion by mistake."""

    name = forms.CharField(widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, policy: Policy, **kw: Any) -> None:
        super().__init__(*args, **{"auto_id": DIALOG_ID, **kw})
        self.policy = policy
        self.fields["name"].label = f"Type {policy.name} to confirm"

    def clean_name(self) -> str:
        """The name as it was typed.

        Raises:
            ValidationError: it is not that of the policy.
        """
        name: str = self.cleaned_data["name"]
        if name.strip() != self.policy.name:
            raise forms.ValidationError("This is not the name of the policy.")
        return name


class _SomeDisabled(forms.Select):
    """Options that are shown and cannot be chosen."""

    def __init__(self, disabled: frozenset[str]) -> None:
        super().__init__()
        self.disabled = disabled

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option: dict[str, Any] = super().create_option(name, value, *args, **kwargs)
        if str(value) in self.disabled:
            option["attrs"]["disabled"] = True
        return option


def _values_of(policy: Policy) -> dict[str, Any]:
    reserved, limit = amounts_of(policy)
    values = {name: getattr(policy, name) for name in PLAIN}
    return {
        **values,
        "reserved": reserved,
        "limit": limit,
        "user_limit": dict(policy.user_limit or {}),
    }


def _initial(known: dict[str, Any]) -> dict[str, Any]:
    initial = {name: value for name, value in known.items() if name not in KINDS}
    if known.get("budget") is not None:
        initial["budget"] = decimal_text(known["budget"])
    for kind in KINDS:
        initial |= {f"{kind}.{key}": text for key, text in known.get(kind, {}).items()}
    return initial


def _keys(known: dict[str, Any]) -> list[str]:
    """GPUs, what some pool lists, and what the policy has: the built-in ones first."""
    keys = {"gpu", *known_keys(), *(key for kind in KINDS for key in known.get(kind, ()))}
    return [*(key for key in BUILT_IN_KEYS if key in keys), *sorted(keys - set(BUILT_IN_KEYS))]


def _parents(actor: User, policy: Policy | None) -> Any:
    """Policies without queues, except the policy itself and those below it."""
    live = policies_administered_by(actor)
    queues = Queue.objects.filter(removed_at__isnull=True)
    parents = live.exclude(pk__in=queues.values("policy")).order_by("position", "pk")
    if policy is None:
        return parents
    return parents.exclude(pk__in=policy_family(policy.pk))
