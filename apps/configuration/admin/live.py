"""What is live, to look at: it is changed through the draft."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from apps.configuration.models import Revision
from apps.configuration.services.pools import pool_pause, pool_resume
from apps.configuration.services.revisions import revision_restore
from apps.core.admin_base import ReadOnlyAdmin, ReadOnlyInline
from apps.policies.models import Pool, PoolLink, Profile


class LinksOfPool(ReadOnlyInline):
    model = PoolLink
    fields = ("profile", "name", "execution_rank")
    ordering = ("execution_rank", "pk")


class LinksOfProfile(ReadOnlyInline):
    model = PoolLink
    fields = ("pool", "name", "routing_rank")
    ordering = ("routing_rank", "pk")


class _LiveAdmin(ReadOnlyAdmin):
    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return live


@admin.register(Pool)
class PoolAdmin(_LiveAdmin):
    list_display = (
        "name",
        "capacity",
        "backfill",
        "preemption",
        "dedicated_to",
        "is_paused",
        "pause_reason",
    )
    list_select_related = ("dedicated_to",)
    search_fields = ("name", "description")
    inlines = (LinksOfPool,)
    actions = ("pause", "resume")

    @admin.display(description=_("paused"), boolean=True)
    def is_paused(self, pool: Pool) -> bool:
        return pool.is_paused

    @admin.action(description=_("Pause the chosen pools"))
    def pause(self, request: HttpRequest, queryset: QuerySet[Pool]) -> None:
        for pool in queryset:
            pool_pause(actor=request.user, pool=pool, reason="")  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description=_("Resume the chosen pools"))
    def resume(self, request: HttpRequest, queryset: QuerySet[Pool]) -> None:
        for pool in queryset:
            pool_resume(actor=request.user, pool=pool)  # type: ignore[arg-type]  # only people enter the admin site


@admin.register(Profile)
class ProfileAdmin(_LiveAdmin):
    list_display = ("name", "request", "replicas", "is_dynamic")
    search_fields = ("name", "description")
    inlines = (LinksOfProfile,)


@admin.register(Revision)
class RevisionAdmin(ReadOnlyAdmin):
    list_display = ("number", "at", "author", "note")
    list_select_related = ("author",)
    search_fields = ("note", "author__username")
    actions = ("restore",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        revisions: QuerySet[Any] = super().get_queryset(request)
        match = request.resolver_match
        # A list of documents would be megabytes.
        is_list = match is not None and str(match.url_name).endswith("_changelist")
        return revisions.defer("document") if is_list else revisions

    @admin.action(description=_("Restore the chosen revision into the draft"))
    def restore(self, request: HttpRequest, queryset: QuerySet[Revision]) -> None:
        if queryset.count() != 1:
            messages.error(request, "Choose one revision.")
            return
        _version, notes = revision_restore(revision=queryset.get(), actor=request.user)  # type: ignore[arg-type]  # only people enter the admin site
        messages.success(request, " ".join(["The draft holds this revision.", *notes]))
