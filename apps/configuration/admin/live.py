"""The live configuration, read-only: it is changed through the draft."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.shortcuts import redirect

from apps.configuration.models import Revision
from apps.configuration.services.pools import pool_pause, pool_resume
from apps.core.admin_base import ReadOnlyAdmin, ReadOnlyInline
from apps.core.units import amounts_text, milli_text
from apps.nodes.capacity import PoolCapacity
from apps.nodes.selectors import ShareEnforcement, capacity_by_pool, enforcement_by_pool
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


def _load_node_facts(pools: Iterable[Any]) -> None:
    """Add to each pool what its nodes have, and how they share it. Three queries."""
    rows = list(pools)
    served, shares = capacity_by_pool(rows), enforcement_by_pool()
    for pool in rows:
        pool.node_facts = (served[pool.pk], shares.get(pool.pk))


def _node_facts(pool: Any) -> tuple[PoolCapacity, ShareEnforcement | None]:
    if not hasattr(pool, "node_facts"):
        _load_node_facts([pool])
    node_facts: tuple[PoolCapacity, ShareEnforcement | None] = pool.node_facts
    return node_facts


@admin.register(Pool)
class PoolAdmin(_LiveAdmin):
    page = "pool_info"
    list_display = (
        "name",
        "capacity",
        "found",
        "shares",
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
    readonly_fields = ("found", "shares", "shares_detail")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Load the nodes' facts for all pools of the page at once."""
        page = super().get_changelist_instance(request)
        _load_node_facts(page.result_list)
        return page

    @admin.display(description="nodes have")
    def found(self, pool: Pool) -> str:
        """What its nodes have, and how that differs from the configuration."""
        served = _node_facts(pool)[0]
        if not served.nodes:
            return "No node serves it."
        amounts = amounts_text({key: milli_text(there) for key, there in served.found.items()})
        sentences = " ".join(one.sentence for one in served.differences)
        return f"{amounts}. {sentences}".strip()

    @admin.display(description="shares of a GPU")
    def shares(self, pool: Pool) -> str:
        """Whether its nodes hold tasks to their shares, and by what."""
        node_facts = _node_facts(pool)[1]
        if node_facts is None:
            return "-"
        by = ", ".join(method for method in node_facts.methods if method != "accounted")
        words = (
            node_facts.memory
            if node_facts.memory == node_facts.compute
            else f"memory {node_facts.memory}, compute {node_facts.compute}"
        )
        return f"{words} ({by})" if by else words

    @admin.display(description="why no more")
    def shares_detail(self, pool: Pool) -> str:
        """Why its nodes cannot enforce shares."""
        node_facts = _node_facts(pool)[1]
        return (node_facts.detail if node_facts else "") or "-"

    @admin.display(description="paused", boolean=True)
    def is_paused(self, pool: Pool) -> bool:
        return pool.is_paused

    @admin.action(description="Pause the chosen pools")
    def pause(self, request: HttpRequest, queryset: QuerySet[Pool]) -> None:
        for pool in queryset:
            pool_pause(actor=request.user, pool=pool, reason="")  # type: ignore[arg-type]  # only people enter the admin site

    @admin.action(description="Resume the chosen pools")
    def resume(self, request: HttpRequest, queryset: QuerySet[Pool]) -> None:
        for pool in queryset:
            pool_resume(actor=request.user, pool=pool)  # type: ignore[arg-type]  # only people enter the admin site


@admin.register(Profile)
class ProfileAdmin(_LiveAdmin):
    page = "resources"
    page_argument = None
    list_display = ("name", "request", "replicas", "is_dynamic")
    search_fields = ("name", "description")
    inlines = (LinksOfProfile,)


@admin.register(Revision)
class RevisionAdmin(ReadOnlyAdmin):
    page = "revision_detail"
    page_argument = "number"
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

    @admin.action(description="Restore the chosen revision into the draft")
    def restore(
        self, request: HttpRequest, queryset: QuerySet[Revision]
    ) -> HttpResponseRedirect | None:
        """Redirect to the page that shows what the draft loses, and asks."""
        if queryset.count() != 1:
            messages.error(request, "Choose one revision.")
            return None
        return redirect("revision_restore", queryset.get().number)
