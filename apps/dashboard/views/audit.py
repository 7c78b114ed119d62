"""The audit log: who did what."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.core.manage_command import manage_command
from apps.dashboard.access import require_administrator
from apps.dashboard.selectors.audit import (
    AuditQuery,
    audit_matching,
    audit_page,
    verbs_suggested,
)
from apps.events.exports import FORMATS, audit_download
from apps.events.selectors import audit_chain, audit_unsealed
from apps.events.services import audit_record


# permission: administrators
@require_GET
@login_required
@never_cache
def audit_list(request: HttpRequest) -> HttpResponse:
    """The newest entries that fit the form; each opens to what it changed."""
    user = require_administrator(request)
    wanted = AuditQuery.parse(request.META.get("QUERY_STRING", ""))
    context = {
        "wanted": wanted,
        "page": audit_page(user, wanted),
        "verbs": verbs_suggested(user),
        "chain": audit_chain(),
        "unsealed": audit_unsealed(),
        "verify": f"{manage_command()} audit verify",
    }
    return render(request, "pages/audit_list.html", context)


# permission: administrators
@require_GET
@login_required
@never_cache
def audit_export(request: HttpRequest, wanted: str) -> StreamingHttpResponse:
    """All entries that fit the form as a file."""
    user = require_administrator(request)
    if wanted not in FORMATS:
        raise Http404
    asked = AuditQuery.parse(request.META.get("QUERY_STRING", ""))
    audit_record(
        "audit.exported",
        actor=user,
        object_type="audit",
        object_id="",
        data={"name": "Audit log", "filters": asked.query()},
    )
    return audit_download(audit_matching(user, asked), wanted)
