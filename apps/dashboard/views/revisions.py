"""History of the configuration, and the document as YAML, out and in."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import (
    draft_changes,
    draft_document,
    live_document,
    revision_document,
    revisions_visible_to,
)
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.revisions import revision_restore
from apps.core.errors import BadInput, RpmError, Stale
from apps.dashboard.access import require_administrator
from apps.dashboard.forms_configuration import ImportForm
from apps.dashboard.layout import page_or_dialog
from apps.dashboard.live import key_id
from apps.dashboard.selectors.revisions import change_views, revision_page
from apps.dashboard.toasts import say
from apps.policies.document import Document, as_yaml, compare, parse, yaml_data
from apps.policies.models import DraftState

SIDES = {"live": live_document, "draft": draft_document}


# permission: administrators
@require_GET
@login_required
def revision_list(request: HttpRequest) -> HttpResponse:
    """Every revision, newest first; with `from` and `to`, those two compared."""
    user = require_administrator(request)
    chosen = {key_id(request.GET.get(name, "")) for name in ("from", "to")} - {0}
    if len(chosen) > 1:
        older, newer = sorted(chosen)
        query = urlencode({"with": older})
        return redirect(f"{reverse('revision_detail', args=[newer])}?{query}")
    before = key_id(request.GET.get("before", "")) or None
    return render(request, "pages/revision_list.html", {"page": revision_page(user, before=before)})


# permission: administrators
@require_GET
@login_required
def revision_detail(request: HttpRequest, number: int) -> HttpResponse:
    """What changed in one revision, or between it and another."""
    user = require_administrator(request)
    revision = _revision(user, number)
    other = _other(user, revision, request.GET.get("with", ""))
    changes = None
    if other is not None:
        changes = change_views(compare(revision_document(other), revision_document(revision)))
    numbers = revisions_visible_to(user).exclude(pk=revision.pk).order_by("-number")
    context = {
        "revision": revision,
        "other": other,
        "changes": changes,
        "others": numbers.values_list("number", "at", named=True)[:200],
        "newest": revisions_visible_to(user).order_by("-number").first(),
    }
    return render(request, "pages/revision_detail.html", context)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def revision_restore_page(request: HttpRequest, number: int) -> HttpResponse:
    """Say what of the draft would be lost, then write the revision into it."""
    user = require_administrator(request)
    revision = _revision(user, number)
    problem = ""
    if request.method == "POST":
        try:
            version = key_id(request.POST.get("version", ""))
            _, notes = revision_restore(revision=revision, actor=user, version=version)
        except Stale as error:
            problem = error.detail
        else:
            said = " ".join([f"The draft is now as revision {number} was.", *notes])
            say(request, said)
            return redirect("resource_editor")
    context = {
        "revision": revision,
        "draft": DraftState.objects.select_related("saved_by").get(id=1),
        "changes": change_views(draft_changes()),
        "would_change": len(compare(live_document(), revision_document(revision))),
        "problem": problem,
        "back": reverse("revision_detail", args=[number]),
    }
    status = 412 if problem else 200
    return page_or_dialog(request, "pages/revision_restore.html", context, status=status)


# permission: administrators
@require_GET
@login_required
def revision_yaml(request: HttpRequest, number: int) -> HttpResponse:
    """One revision as a file."""
    revision = _revision(require_administrator(request), number)
    return _file(revision_document(revision), f"rpm-revision-{number}.yaml")


# permission: administrators
@require_GET
@login_required
def resource_yaml_download(request: HttpRequest, side: str) -> HttpResponse:
    """The live configuration or the draft as a file."""
    require_administrator(request)
    if side not in SIDES:
        raise Http404
    return _file(SIDES[side](), f"rpm-{side}.yaml")


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def resource_yaml(request: HttpRequest) -> HttpResponse:
    """Export, and import into the draft."""
    user = require_administrator(request)
    draft = DraftState.objects.select_related("saved_by").get(id=1)
    if request.method == "POST":
        form = ImportForm(request.POST, request.FILES)
        if form.is_valid() and _import(form, user):
            say(request, "The draft is what you imported. Nothing is live yet.")
            return redirect("resource_editor")
    else:
        form = ImportForm()
    context = {
        "form": form,
        "version": draft.version,
        "draft": draft,
        "changes": change_views(draft_changes()),
    }
    status = 400 if form.is_bound else 200
    return render(request, "pages/resource_yaml.html", context, status=status)


def _import(form: ImportForm, user: User) -> bool:
    given = form.cleaned_data
    try:
        document = parse(yaml_data(given["text"]))
        draft_write(document=document, actor=user, version=given["version"])
    except BadInput as error:
        paths = error.fields if "body" not in error.fields else {}
        for path, problem in paths.items():
            form.add_error("text", f"{path} {problem}.")
        if not paths:
            form.add_error("text", error.detail)
    except RpmError as error:
        form.add_error(None, error.detail)
    return form.is_valid()


def _revision(user: User, number: int) -> Revision:
    return get_object_or_404(revisions_visible_to(user).select_related("author"), number=number)


def _other(user: User, revision: Revision, given: str) -> Revision | None:
    """The revision to compare with: the one that is named, else the one before.

    Raises:
        Http404: there is none of that number.
    """
    visible = revisions_visible_to(user).select_related("author")
    if given:
        return get_object_or_404(visible, number=key_id(given))
    return visible.filter(number__lt=revision.number).order_by("-number").first()


def _file(document: Document, name: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(
        as_yaml(document), content_type="application/yaml; charset=utf-8", headers=headers
    )
