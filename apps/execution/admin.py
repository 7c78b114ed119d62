"""Nodes on the admin site. What needs several steps, such as adding a node, has its own page."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.forms import ActionForm
from unfold.widgets import UnfoldAdminTextInputWidget

from apps.core.admin_base import ReadOnlyInline, ServiceAdmin
from apps.core.admin_form_digest import form_digest
from apps.core.errors import RpmError, Stale
from apps.execution.services.node_changes import node_edit
from apps.execution.services.node_keys import node_key_path
from apps.execution.services.node_removal import node_remove, tasks_named, tasks_on
from apps.nodes.models import Device, Node, Transport
from apps.nodes.services import (
    node_declare_off,
    node_dismiss_serial,
    node_drain,
    node_pause,
    node_resume,
)

# Only nodes over SSH have these.
_CONNECTION = ("address", "port", "user", "key", "runtime", "state_dir")


class DevicesOfNode(ReadOnlyInline):
    model = Device
    fields = ("index", "uuid", "model", "memory_mb", "state", "is_simulated")


class ReasonForm(ActionForm):
    """The reason, next to the choice of an action."""

    reason = forms.CharField(
        required=False,
        max_length=500,
        label="Reason",
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "Reason"}),
    )


class NodeForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """A node; an empty key keeps the one that it has."""

    key = forms.CharField(
        required=False,
        max_length=120,
        label="Private key",
        help_text="The name of a file in RPM_HOME. Empty: keep the key.",
        widget=UnfoldAdminTextInputWidget(),
    )
    # What the service answered to the same values.
    refusal: RpmError | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.transport != Transport.SSH:
            for name in self.fields.keys() & set(_CONNECTION):
                self.fields[name].disabled = True

    def clean(self) -> None:
        super().clean()
        if self.refusal is None:
            return
        found = {name: text for name, text in self.refusal.fields.items() if name in self.fields}
        for name, text in found.items():
            self.add_error(name, text[:1].upper() + text[1:])
        if not found:
            self.add_error(None, self.refusal.detail)

    def columns(self) -> dict[str, Any]:
        """Columns of the node that were changed.

        Raises:
            BadInput: the server has no such private key.
        """
        values = {name: self.cleaned_data[name] for name in self.changed_data}
        key = values.pop("key", "")
        return values | ({"key_path": node_key_path(key)} if key else {})


@admin.register(Node)
class NodeAdmin(ServiceAdmin):
    page = "node_detail"
    form = NodeForm
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
        ("capacity_cap", "allows_process"),
        ("transport", "address", "port"),
        ("user", "key"),
        ("runtime", "state_dir"),
        ("state", "state_detail", "last_seen_at"),
        ("capacity", "gpu_model", "is_simulated"),
        ("is_draining", "pause_reason"),
        "serial_refused_at",
    )
    inlines = (DevicesOfNode,)
    actions = (
        *("pause", "resume", "drain", "declare_off", "dismiss_serial"),
        *("replace_host_key", "delete_selected"),
    )
    action_form = ReasonForm

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return live

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ARG002  # Django's
        return (
            "transport",
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

    @admin.display(description="paused", boolean=True)
    def is_paused(self, node: Node) -> bool:
        return node.is_paused

    def get_form(
        self,
        request: HttpRequest,
        obj: Any = None,
        change: Any = False,  # noqa: FBT002  # Django's signature
        **kwargs: Any,
    ) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.refusal = getattr(request, "node_refusal", None)
        return form

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        done = self._edit(request, object_id) if request.method == "POST" and object_id else None
        return done or super().changeform_view(request, object_id, form_url, extra_context)

    def _edit(self, request: HttpRequest, object_id: str) -> HttpResponse | None:
        """Save what was sent; None where the form is to be shown again.

        Another connection is tried, and no transaction may wait for a machine: Django's view, which
        opens one, only shows what was refused.
        """
        node = self.get_object(request, unquote(object_id))
        if node is None or not self.has_change_permission(request, node):
            return None
        form = self.get_form(request, node, change=True)(request.POST, instance=node)
        if not form.is_valid() or request.POST.get("shown") != form_digest(form, []):
            return None
        actor: Any = request.user
        try:
            node_edit(actor=actor, node=Node.objects.get(pk=node.pk), values=form.columns())
        except RpmError as error:
            request.node_refusal = error  # type: ignore[attr-defined]  # for `get_form`
            return None
        self.log_change(request, node, self.construct_change_message(request, form, []))
        return self.response_change(request, node)

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        raise Stale("The node changed meanwhile. Nothing was saved: save it again.")

    def remove(self, request: HttpRequest, row: Node) -> None:
        node_remove(actor=request.user, node=row)  # type: ignore[arg-type]  # only people enter the admin site

    def add_view(
        self,
        request: HttpRequest,
        form_url: str = "",  # noqa: ARG002  # Django's
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        """The page that adds one step by step."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return redirect("node_add")

    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002  # Django's
    ) -> HttpResponse:
        """The page that names what a forced removal stops."""
        node = self.get_object(request, unquote(object_id))
        if not self.has_delete_permission(request, node):
            raise PermissionDenied
        if node is None:
            raise Http404
        return redirect("node_remove", node.pk)

    @admin.action(description="Remove the chosen nodes…", permissions=["delete"])
    def delete_selected(
        self, request: HttpRequest, queryset: QuerySet[Node]
    ) -> HttpResponse | None:
        """One: the page that can force it. Several: after a confirmation, where no task is."""
        nodes = list(queryset)
        if len(nodes) == 1:
            return redirect("node_remove", nodes[0].pk)
        held = [(node, tasks_on(node)) for node in nodes]
        busy = [f"{node.name} ({tasks_named(tasks)})" for node, tasks in held if tasks]
        if busy:
            words = (
                f"Nothing was removed. Tasks hold something of {', '.join(busy)}. Drain these "
                "nodes and wait, or choose one alone to see what a forced removal stops."
            )
            self.message_user(request, words, messages.ERROR)
            return None
        return delete_selected(self, request, queryset)

    @admin.action(description="Replace the host key of the chosen node…")
    def replace_host_key(
        self, request: HttpRequest, queryset: QuerySet[Node]
    ) -> HttpResponse | None:
        """The page that shows both fingerprints."""
        nodes = list(queryset)
        if len(nodes) == 1:
            return redirect("node_rekey", nodes[0].pk)
        self.message_user(request, "Choose one node to replace its host key.", messages.ERROR)
        return None

    @admin.action(description="Pause the chosen nodes")
    def pause(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset:
            node_pause(actor=request.user, node=node, reason="")  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Resume the chosen nodes: end pause, drain and removal")
    def resume(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset:
            node_resume(actor=request.user, node=node)  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Declare the chosen silent nodes switched off (give a reason)")
    def declare_off(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        reason = request.POST.get("reason", "")
        for node in queryset:
            try:
                node_declare_off(actor=request.user, node=node, reason=reason)  # type: ignore[arg-type]  # only people enter the admin site
            except RpmError as error:
                self.message_user(request, f"{node.name}: {error.detail}", messages.ERROR)

    @admin.action(description="Drain the chosen nodes")
    def drain(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset:
            node_drain(actor=request.user, node=node)  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Dismiss the refused serials of the chosen nodes")
    def dismiss_serial(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        for node in queryset:
            node_dismiss_serial(actor=request.user, node=node)  # type: ignore[arg-type]  # only people enter the admin site
