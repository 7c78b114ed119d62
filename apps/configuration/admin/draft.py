"""The draft in forms: pools, profiles, links and orders, and provisioning it."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from unfold.admin import TabularInline
from unfold.decorators import action

from apps.configuration.admin.steps import provision_view, reset_view, validate_view
from apps.configuration.services.draft_rows import draft_rows_save
from apps.configuration.services.rows import draft_wait
from apps.core.admin_base import ServiceAdmin
from apps.core.units import amounts_text
from apps.policies.document import Settings
from apps.policies.models import (
    DraftPool,
    DraftPoolLink,
    DraftProfile,
    DraftQueueRank,
    DraftState,
    Queue,
)

SETTINGS = Settings.__struct_fields__


class _LinkForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """An empty rank is the last, and an empty name is that of the pool."""

    class Meta:
        model = DraftPoolLink
        fields = ("profile", "pool", "name", "routing_rank", "execution_rank")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("name", "routing_rank", "execution_rank"):
            if name in self.fields:
                self.fields[name].required = False


class DraftLinksOfProfile(TabularInline):
    """Pools of a profile in routing order; drag to reorder."""

    model = DraftPoolLink
    form = _LinkForm
    fields = ("pool", "name", "routing_rank")
    ordering = ("routing_rank", "pk")
    ordering_field = "routing_rank"  # type: ignore[assignment]  # unfold says None only
    hide_ordering_field = False
    autocomplete_fields = ("pool",)
    extra = 0
    verbose_name_plural = "pools, in the order in which tasks go to them"


class DraftLinksOfPool(TabularInline):
    """Profiles of a pool in execution order; drag to reorder."""

    model = DraftPoolLink
    form = _LinkForm
    fields = ("profile", "name", "execution_rank")
    ordering = ("execution_rank", "pk")
    ordering_field = "execution_rank"  # type: ignore[assignment]  # unfold says None only
    hide_ordering_field = False
    autocomplete_fields = ("profile",)
    extra = 0
    verbose_name_plural = "profiles, in the order in which the pool serves them"


class QueuesOfProfile(TabularInline):
    """The queuing order. Queues come and go by connecting profiles, not here."""

    model = DraftQueueRank
    fields = ("queue", "policy", "rank")
    readonly_fields = ("queue", "policy")
    ordering = ("rank", "pk")
    ordering_field = "rank"  # type: ignore[assignment]  # unfold says None only
    hide_ordering_field = False
    extra = 0
    can_delete = False
    verbose_name_plural = "queues, in the order in which their tasks come"

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("queue__policy")

    @admin.display(description="policy")
    def policy(self, rank: DraftQueueRank) -> str:
        queue: Queue = rank.queue
        return queue.policy.name

    def has_add_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: object = None,  # noqa: ARG002
    ) -> bool:
        return False


class _DraftAdmin(ServiceAdmin):
    """Saving a row with its links counts the draft's version up once."""

    page = "resource_editor"
    page_argument = None
    actions_list = ("validate", "provision", "reset")  # type: ignore[assignment]  # unfold says () only

    @action(description="Validate", icon="rule")  # type: ignore[operator]  # unfold calls its decorator an Action
    def validate(self, _request: HttpRequest) -> HttpResponse:
        return redirect("admin:draft_validate")

    @action(description="Provision", icon="rocket_launch")  # type: ignore[operator]  # unfold calls its decorator an Action
    def provision(self, _request: HttpRequest) -> HttpResponse:
        return redirect("admin:draft_provision")

    @action(description="Reset", icon="undo")  # type: ignore[operator]  # unfold calls its decorator an Action
    def reset(self, _request: HttpRequest) -> HttpResponse:
        return redirect("admin:draft_reset")

    def hold(self) -> None:
        super().hold()
        draft_wait()

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:
        rows, removed = [form.instance], []
        for formset in formsets:
            rows += formset.save(commit=False)
            removed += formset.deleted_objects
        draft_rows_save(actor=request.user, rows=rows, removed=removed)  # type: ignore[arg-type]  # only people enter the admin site

    def remove(self, request: HttpRequest, row: Any) -> None:
        draft_rows_save(actor=request.user, removed=[row])  # type: ignore[arg-type]  # only people enter the admin site


@admin.register(DraftPool)
class DraftPoolAdmin(_DraftAdmin):
    list_display = ("name", "amounts", "backfill", "preemption", "dedicated_to", "position")
    list_select_related = ("dedicated_to",)
    search_fields = ("name", "description")
    fields = (
        "name",
        "description",
        "capacity",
        "backfill",
        "preemption",
        "allowed_images",
        "dedicated_to",
        "position",
    )
    autocomplete_fields = ("dedicated_to",)
    inlines = (DraftLinksOfPool,)

    @admin.display(description="capacity")
    def amounts(self, pool: DraftPool) -> str:
        return amounts_text(pool.capacity) or "–"


@admin.register(DraftProfile)
class DraftProfileAdmin(_DraftAdmin):
    list_display = ("name", "amounts", "replicas", "is_dynamic", "position")
    search_fields = ("name", "description")
    fields = (
        "name",
        "description",
        "request",
        "replicas",
        "is_dynamic",
        ("request_min", "request_max"),
        ("device_models", "volumes"),
        "shm_mb",
        ("host_network", "read_only_root", "allow_streams"),
        "extra_permissions",
        "position",
    )
    inlines = (DraftLinksOfProfile, QueuesOfProfile)

    @admin.display(description="request")
    def amounts(self, profile: DraftProfile) -> str:
        return amounts_text(profile.request) or "–"


@admin.register(DraftState)
class DraftStateAdmin(_DraftAdmin):
    """The settings of the whole configuration: one row."""

    list_display = ("__str__", "saved_by", "saved_at", *SETTINGS)
    list_select_related = ("saved_by",)
    search_fields = ("preemption",)
    fields = (
        *SETTINGS,
        "version",
        "base_revision",
        "saved_by",
        "saved_at",
    )
    readonly_fields = ("version", "base_revision", "saved_by", "saved_at")

    def get_urls(self) -> list[URLPattern]:
        def page(name: str, view: Any) -> URLPattern:
            made: URLPattern = path(
                f"{name}/", self.admin_site.admin_view(view), name=f"draft_{name}"
            )
            return made

        steps = {"validate": validate_view, "provision": provision_view, "reset": reset_view}
        return [*(page(name, view) for name, view in steps.items()), *super().get_urls()]

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        settings = {name: form.cleaned_data[name] for name in SETTINGS}
        draft_rows_save(actor=request.user, settings=settings)  # type: ignore[arg-type]  # only people enter the admin site

    def changelist_view(
        self,
        request: HttpRequest,
        extra_context: dict[str, str] | None = None,  # noqa: ARG002  # Django's
    ) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return HttpResponseRedirect(reverse("admin:policies_draftstate_change", args=[1]))

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  # Django's
        return False

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: object = None,  # noqa: ARG002
    ) -> bool:
        return False
