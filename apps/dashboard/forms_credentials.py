"""Forms for credentials and service accounts; services validate them."""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from apps.accounts.models import Scope
from apps.dashboard.forms_base import PageForm
from apps.dashboard.forms_people import DIALOG_ID, GroupsField

_LASTS = [
    ("30", "30 days"),
    ("90", "90 days"),
    ("365", "1 year"),
    ("", "Until it is revoked"),
]
_SCOPES = [
    (Scope.READ, "Read: look at what its owner sees"),
    (Scope.ENQUEUE, "Enqueue: and all with its own tasks"),
    (Scope.ADMINISTER, "Administer: all that its owner may"),
]


class GrantForm(PageForm):
    """What a new credential is for, and for how long."""

    scope = forms.ChoiceField(
        label="What it may do",
        choices=_SCOPES,
        initial=Scope.ENQUEUE,
        help_text="The least that is enough: it cannot be changed later.",
    )
    lasts = forms.ChoiceField(
        label="How long it works",
        choices=_LASTS,
        initial="",
        required=False,
        help_text="After that it is refused; make another one before.",
    )

    def granted(self) -> dict[str, Any]:
        """What the services take."""
        return {"scope": Scope(self.cleaned_data["scope"]), "expires_at": self._expires_at()}

    def _expires_at(self) -> datetime | None:
        days = self.cleaned_data["lasts"]
        return timezone.now() + timedelta(days=int(days)) if days else None


class CredentialForm(GrantForm):
    """A key for a program."""

    label = forms.CharField(
        label="What it is for",
        max_length=100,
        help_text="So that you know later whether it is still needed.",
        widget=forms.TextInput(attrs={"placeholder": "nightly training"}),
    )
    field_order = ("label", "scope", "lasts")


class CredentialLabelForm(PageForm):
    """Another label of a credential."""

    label = forms.CharField(
        label="What it is for", max_length=100, widget=forms.TextInput(attrs={"autofocus": True})
    )

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **{"auto_id": DIALOG_ID, **given})


class ServiceAccountForm(PageForm):
    """A program's account."""

    name = forms.CharField(
        label="Name",
        max_length=150,
        help_text="Letters, digits and @ . + - _",
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        ),
    )
    groups = GroupsField(
        label="Groups", help_text="They decide what it may see and do, as for people."
    )
    can_act_for_owners = forms.BooleanField(
        label="Allow impersonation",
        required=False,
        help_text=(
            "It may act for the owner of a task that it sees, with the owner's permissions on "
            "tasks and never as an administrator. The audit log records both names."
        ),
    )

    def changes(self) -> dict[str, Any]:
        """What the services take."""
        given = self.cleaned_data
        return {
            "name": given["name"],
            "groups": [group.name for group in given["groups"]],
            "can_act_for_owners": given["can_act_for_owners"],
        }


class ServiceAccountNewForm(ServiceAccountForm, GrantForm):
    """With its first credential."""

    field_order = ("name", "groups", "can_act_for_owners", "scope", "lasts")
