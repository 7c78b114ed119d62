"""Queues in forms, for administrators and queue administrators."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.configuration.services.queues import (
    profile_connect,
    profile_disconnect,
    queue_change,
    queue_pause,
    queue_reorder,
    queue_resume,
)
from apps.configuration.services.tenant_checks import QUEUE_SETTINGS
from apps.core.admin_base import ServiceAdmin
from apps.policies.models import Policy, Profile, Queue

SETTINGS = (
    "name",
    ("allow_over_quota", "allow_streams"),
    ("on_preemption", "on_node_loss"),
    ("min_runtime_s", "max_preemptions", "grace_s"),
    ("max_priority", "max_waiting"),
    ("idle_warn_minutes", "idle_stop_minutes"),
)


class ConnectForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """A new queue: its profile, its policy, and optionally a name."""

    class Meta:
        model = Queue
        fields = ("policy", "profile", "name")
        help_texts = {"name": "Empty: <policy>-<profile>."}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].required = False
        # Plain lists: searching needs a permission on policies, which queue administrators lack.
        for name, model in (("policy", Policy), ("profile", Profile)):
            live = model._default_manager.filter(removed_at__isnull=True)
            self.fields[name].queryset = live  # type: ignore[attr-defined]  # a ModelChoiceField

    def _post_clean(self) -> None:
        """Skip the check of the form: the service checks the complete row."""


@admin.register(Queue)
class QueueAdmin(ServiceAdmin):
    """Queues are created by connecting a profile to a policy; removed rows leave the list."""

    page = "queue_detail"
    list_display = ("name", "profile", "policy", "queuing_rank", "is_paused", "pause_reason")
    list_select_related = ("profile", "policy")
    list_filter = ("profile", "policy")
    ordering = ("profile__position", "profile_id", "queuing_rank")
    search_fields = ("name", "profile__name", "policy__name")
    readonly_fields = ("profile", "policy", "queuing_rank")
    actions = ("pause", "resume", "move_up", "move_down")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return live

    def get_form(
        self,
        request: HttpRequest,
        obj: Any = None,
        change: Any = False,  # noqa: FBT002  # Django's signature
        **kwargs: Any,
    ) -> Any:
        if obj is None:
            kwargs["form"] = ConnectForm
        return super().get_form(request, obj, change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ARG002  # Django's
        if obj is None:
            return ("policy", "profile", "name")
        return ("profile", "policy", "queuing_rank", *SETTINGS)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ARG002  # Django's
        return () if obj is None else self.readonly_fields

    @admin.display(description="paused", boolean=True)
    def is_paused(self, queue: Queue) -> bool:
        return queue.is_paused

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        actor: Any = request.user
        if form.instance.pk is None:
            made = profile_connect(
                actor=actor,
                policy=form.cleaned_data["policy"],
                profile=form.cleaned_data["profile"],
                queue_name=form.cleaned_data["name"] or None,
            )
            form.instance.pk, form.instance.name = made.pk, made.name
            return
        values = {n: form.cleaned_data[n] for n in form.changed_data if n in QUEUE_SETTINGS}
        if values:
            queue_change(actor=actor, queue=form.instance, changes=values)

    def remove(self, request: HttpRequest, row: Queue) -> None:
        profile_disconnect(actor=request.user, queue=row)  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Pause the chosen queues", permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        for queue in queryset:
            queue_pause(actor=request.user, queue=queue, reason="")  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Resume the chosen queues", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        for queue in queryset:
            queue_resume(actor=request.user, queue=queue)  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Earlier in the order of its profile", permissions=["change"])
    def move_up(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self._move(request, queryset, by=-1)

    @admin.action(description="Later in the order of its profile", permissions=["change"])
    def move_down(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self._move(request, queryset, by=1)

    def _move(self, request: HttpRequest, queryset: QuerySet[Queue], *, by: int) -> None:
        if queryset.count() != 1:
            messages.error(request, "Choose one queue.")
            return
        queue = queryset.get()
        order = list(
            Queue.objects.filter(profile=queue.profile, removed_at__isnull=True).order_by(
                "queuing_rank", "pk"
            )
        )
        place = order.index(queue)
        order.insert(max(0, place + by), order.pop(place))
        queue_reorder(actor=request.user, profile=queue.profile, order=order)  # type: ignore[arg-type]  # only people enter the admin site
