"""Policies in forms. Changes apply at once."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from apps.configuration.services.exceeders import policy_set_exceeders
from apps.configuration.services.policies import policy_change, policy_create, policy_remove
from apps.configuration.services.pools import policy_pause, policy_resume
from apps.core.admin_base import ReadOnlyInline, ServiceAdmin
from apps.core.errors import BadInput
from apps.core.units import milli, quantity_text
from apps.policies.models import (
    Policy,
    PolicyAmount,
    PolicyGroupPermission,
    PolicyUserPermission,
    Queue,
)
from apps.policies.selectors import EXCEED_LIMIT


class AmountForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    class Meta:
        model = PolicyAmount
        fields = ("key", "reserved_text", "limit_text")
        labels = {"reserved_text": "reserved", "limit_text": "limit"}

    def clean(self) -> dict[str, Any]:
        """Check amounts as everywhere else; an empty one means none."""
        values: dict[str, Any] = super().clean() or {}
        for name in ("reserved_text", "limit_text"):
            if values.get(name):
                try:
                    key = values.get("key") or ""
                    values[name] = quantity_text(values[name], field=key or "amount", key=key)
                except BadInput as error:
                    self.add_error(name, error.detail)
        reserved, limit = values.get("reserved_text"), values.get("limit_text")
        if not self.errors and reserved and limit and milli(reserved) > milli(limit):
            self.add_error("reserved_text", "The reservation is above the limit.")
        return values


class AmountsOfPolicy(TabularInline):
    model = PolicyAmount
    form = AmountForm
    extra = 0
    verbose_name_plural = "amounts per resource key; an empty limit is none"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        amounts: QuerySet[Any] = super().get_queryset(request).filter(pool__isnull=True)
        return amounts


_HOLDERS = ("user", "group")


class _Exceeders(TabularInline):
    """Users who may exceed the limit; other permissions on policies are not shown here."""

    extra = 0

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        permissions: QuerySet[Any] = super().get_queryset(request)
        return permissions.filter(permission__codename=EXCEED_LIMIT)


class ExceederUsers(_Exceeders):
    model = PolicyUserPermission
    fields = ("user",)
    autocomplete_fields = ("user",)
    verbose_name_plural = "people who may exceed the limit, with work that is always over quota"


class ExceederGroups(_Exceeders):
    model = PolicyGroupPermission
    fields = ("group",)
    autocomplete_fields = ("group",)
    verbose_name_plural = "groups whose members may exceed the limit"


class QueuesOfPolicy(ReadOnlyInline):
    """Profiles are connected among the queues."""

    model = Queue
    fields = ("name", "profile", "queuing_rank", "allow_over_quota", "on_preemption")
    show_change_link = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        queues: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return queues


@admin.register(Policy)
class PolicyAdmin(ServiceAdmin):
    page = "policy_detail"
    list_display = ("name", "group", "parent", "weight", "is_strict", "is_paused")
    list_select_related = ("group", "parent")
    list_filter = ("group",)
    search_fields = ("name", "description")
    autocomplete_fields = ("group", "parent")
    fields = (
        "name",
        "description",
        ("group", "parent"),
        ("weight", "is_strict"),
        "user_limit",
        "logs_open_to_group",
        ("budget", "budget_stops"),
    )
    inlines = (AmountsOfPolicy, ExceederUsers, ExceederGroups, QueuesOfPolicy)
    actions = ("pause", "resume")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return live

    @admin.display(description="paused", boolean=True)
    def is_paused(self, policy: Policy) -> bool:
        return policy.is_paused

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        amounts = next(f for f in formsets if f.model is PolicyAmount)
        if amounts.has_changed():
            values |= _amounts(amounts)
        actor: Any = request.user
        if form.instance.pk is None:
            form.instance.pk = policy_create(actor=actor, **values).pk
        elif values:
            policy_change(actor=actor, policy=form.instance, changes=values)
        permissions = [
            f for f in formsets if f.model in (PolicyUserPermission, PolicyGroupPermission)
        ]
        if any(formset.has_changed() for formset in permissions):
            users, groups = (
                [row[name] for row in _rows(formset)]
                for formset, name in zip(permissions, _HOLDERS, strict=True)
            )
            policy_set_exceeders(actor=actor, policy=form.instance, users=users, groups=groups)

    def remove(self, request: HttpRequest, row: Policy) -> None:
        policy_remove(actor=request.user, policy=row)  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Pause the chosen policies")
    def pause(self, request: HttpRequest, queryset: QuerySet[Policy]) -> None:
        for policy in queryset:
            policy_pause(actor=request.user, policy=policy, reason="")  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Resume the chosen policies")
    def resume(self, request: HttpRequest, queryset: QuerySet[Policy]) -> None:
        for policy in queryset:
            policy_resume(actor=request.user, policy=policy)  # type: ignore[arg-type]  # only people enter the admin site


def _rows(formset: Any) -> list[dict[str, Any]]:
    """The rows that an inline was sent with, without deleted ones."""
    return [
        form.cleaned_data
        for form in formset.forms
        if form.cleaned_data and not form.cleaned_data.get("DELETE")
    ]


def _amounts(formset: Any) -> dict[str, dict[str, str]]:
    """Reservation and limit per key, as the inline was sent."""
    rows = _rows(formset)
    return {
        "reserved": {row["key"]: row["reserved_text"] for row in rows if row["reserved_text"]},
        "limit": {row["key"]: row["limit_text"] for row in rows if row["limit_text"]},
    }
