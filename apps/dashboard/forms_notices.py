"""The forms of notice rules and of their e-mail; services validate them."""

from typing import Any

from django import forms

from apps.accounts.models import User
from apps.dashboard.forms_base import PageForm
from apps.dashboard.forms_people import DIALOG_ID
from apps.notices.models import (
    NoticeDigest,
    NoticeKind,
    NoticeRule,
    NoticeScope,
    NoticeSettings,
    WaitLimit,
)
from apps.notices.selectors import policies_to_notice, queues_to_notice

_OWN = NoticeScope.OWN.value


class NoticeRuleForm(PageForm):
    """Which tasks, and what of them; with `rule` an existing one, whose tasks stay."""

    tasks = forms.ChoiceField(label="Tasks")
    kinds = forms.MultipleChoiceField(
        label="When a task is", choices=NoticeKind.choices, widget=forms.CheckboxSelectMultiple
    )
    wait_minutes = forms.TypedChoiceField(
        label="Waiting for longer than",
        choices=[("", "–"), *WaitLimit.choices],
        coerce=int,
        empty_value=None,
        required=False,
    )

    by_email = forms.BooleanField(
        label="Also by e-mail", required=False, help_text="Sent at the times set under E-mail."
    )

    def __init__(self, *args: Any, user: User, rule: NoticeRule | None, **given: Any) -> None:
        kinds = [NoticeKind.FAILED, NoticeKind.PREEMPTED] if rule is None else rule.kinds
        initial = {
            "kinds": kinds,
            "wait_minutes": rule.wait_minutes if rule else None,
            "by_email": rule.by_email if rule else False,
        }
        super().__init__(*args, **{"auto_id": DIALOG_ID, "initial": initial, **given})
        self._rows: dict[str, Any] = {}
        if rule is not None:
            del self.fields["tasks"]
            return
        self._rows |= {f"queue {one.pk}": one for one in queues_to_notice(user).order_by("name")}
        self._rows |= {f"policy {one.pk}": one for one in policies_to_notice(user).order_by("name")}
        fields: Any = self.fields
        named = [(key, f"{key.split()[0].capitalize()} {one}") for key, one in self._rows.items()]
        fields["tasks"].choices = [(_OWN, "My own tasks"), *named]

    def clean(self) -> dict[str, Any]:
        """The values as the services take them."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if NoticeKind.WAITING not in values.get("kinds", ()):
            values["wait_minutes"] = None
        key = values.pop("tasks", None)
        if key is not None:
            scope = key.partition(" ")[0]
            values["scope"] = scope
            if scope != _OWN:
                values[scope] = self._rows[key]
        return values


_HOURS = [("", "–"), *((hour, f"{hour:02d}:00") for hour in range(24))]


class NoticeMailForm(PageForm):
    """When notices go by e-mail."""

    digest = forms.ChoiceField(label="Send", choices=NoticeDigest.choices)
    quiet_from = forms.TypedChoiceField(
        label="Not from", choices=_HOURS, coerce=int, empty_value=None, required=False
    )
    quiet_until = forms.TypedChoiceField(
        label="Until", choices=_HOURS, coerce=int, empty_value=None, required=False
    )

    def __init__(self, *args: Any, row: NoticeSettings, **given: Any) -> None:
        initial = {name: getattr(row, name) for name in ("digest", "quiet_from", "quiet_until")}
        super().__init__(*args, **{"initial": initial, **given})
