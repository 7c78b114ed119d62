"""Nodes and volumes. A node is added on the command line, where its host key is confirmed."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.forms import ActionForm
from unfold.widgets import UnfoldAdminTextInputWidget

from apps.core.admin_base import ReadOnlyInline, ServiceAdmin
from apps.core.errors import RpmError
from apps.nodes.models import Device, Node, Volume
from apps.nodes.services import (
    node_change,
    node_declare_off,
    node_dismiss_serial,
    node_drain,
    node_pause,
    node_resume,
    volume_change,
    volume_create,
    volume_remove,
)


class DevicesOfNode(ReadOnlyInline):
    model = Device
    fields = ("index", "uuid", "model", "memory_mb", "state", "is_simulated")


class ReasonForm(ActionForm):
    """Beside the choice of an action: why."""

    reason = forms.CharField(
        required=False,
        max_length=500,
        label=_("Reason"),
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": _("Reason")}),
    )


@admin.register(Node)
class NodeAdmin(ServiceAdmin):
    page = "node_detail"
    list_display = (
        "name",
        "pool",
        "state",
        "gpu_model",
        "is_draining",
        "is_paused",
        "last_seen_at",
    )
    list_select_related = ("pool",)
    list_filter = ("pool", "state", "is_simulated")
    search_fields = ("name", "address", "gpu_model")
    autocomplete_fields = ("pool",)
    fields = (
        ("name", "pool"),
        "labels",
        "allows_process",
        ("transport", "address", "port", "user", "runtime"),
        ("state", "state_detail", "last_seen_at"),
        ("capacity", "gpu_model", "is_simulated"),
        ("is_draining", "pause_reason"),
        "serial_refused_at",
    )
    inlines = (DevicesOfNode,)
    actions = ("pause", "resume", "drain", "declare_off", "dismiss_serial")
    action_form = ReasonForm

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return live

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ARG002  # Django's
        return (
            "transport",
            "address",
            "port",
            "user",
            "runtime",
            "state",
            "state_detail",
            "last_seen_at",
            "capacity",
            "gpu_model",
            "is_simulated",
            "is_draining",
            "pause_reason",
            "serial_refused_at",
        )

    @admin.display(description=_("paused"), boolean=True)
    def is_paused(self, node: Node) -> bool:
        return node.is_paused

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        if values:
            node_change(actor=request.user, node=form.instance, values=values)  # type: ignore[arg-type]  # only people enter the admin site

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  # Django's
        return False

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: object = None,  # noqa: ARG002
    ) -> bool:
        return False

    @admin.action(description=_("Pause the chosen nodes"))
    def pause(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset:
            node_pause(actor=request.user, node=node, reason="")  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description=_("Resume the chosen nodes, and stop draining them"))
    def resume(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset:
            node_resume(actor=request.user, node=node)  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description=_("Declare the chosen silent nodes switched off (say why)"))
    def declare_off(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        reason = request.POST.get("reason", "")
        for node in queryset:
            try:
                node_declare_off(actor=request.user, node=node, reason=reason)  # type: ignore[arg-type]  # only people enter the admin site
            except RpmError as error:
                self.message_user(request, f"{node.name}: {error.detail}", messages.ERROR)

    @admin.action(description=_("Drain the chosen nodes"))
    def drain(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset:
            node_drain(actor=request.user, node=node)  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description=_("Dismiss the refused serials of the chosen nodes"))
    def dismiss_serial(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset:
            node_dismiss_serial(actor=request.user, node=node)  # type: ignore[arg-type]  # only people enter the admin site


@admin.register(Volume)
class VolumeAdmin(ServiceAdmin):
    list_display = ("name", "path", "is_read_only", "scope", "pool")
    list_select_related = ("pool",)
    list_filter = ("scope",)
    search_fields = ("name", "path", "description")
    autocomplete_fields = ("pool",)
    fields = ("name", "description", "path", "is_read_only", "scope", "pool")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return live

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        actor: Any = request.user
        if form.instance.pk is None:
            form.instance.pk = volume_create(actor=actor, values=form.cleaned_data).pk
            return
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        if values:
            volume_change(actor=actor, volume=form.instance, values=values)

    def remove(self, request: HttpRequest, row: Volume) -> None:
        volume_remove(actor=request.user, volume=row)  # type: ignore[arg-type]  # only people enter the admin site
