"""Pages that edit, re-key and remove a node."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from apps.accounts.models import User
from apps.core.errors import Conflict, RpmError
from apps.dashboard.access import require_administrator
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_nodes import NodeEditForm, NodeRemoveForm, RekeyForm
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.toasts import say
from apps.execution.connections import pinned_key
from apps.execution.services.node_changes import node_edit, node_rekey
from apps.execution.services.node_registration import host_key_of
from apps.execution.services.node_removal import node_remove, tasks_on
from apps.nodes.models import Node, NodeState
from apps.nodes.selectors import nodes_visible_to


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def node_edit_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a node; another connection is tried before it is kept."""
    user = require_administrator(request)
    node = _node(user, pk)
    form = NodeEditForm(_post_data(request), node=node, user=user)
    if request.method == "POST" and form.is_valid():
        try:
            node_edit(actor=user, node=node, values=form.columns())
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, f"{node.name} is saved.")
            return redirect_to(request, reverse("node_detail", args=[pk]))
    return _page(request, "pages/node_edit.html", node, form)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def node_rekey_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show both fingerprints, and pin the new one once an administrator compared it."""
    user = require_administrator(request)
    node = _node(user, pk)
    form = RekeyForm(_post_data(request))
    if request.method == "POST" and form.is_valid():
        values = dict(form.cleaned_data)
        try:
            key = host_key_of(node, wanted=values.pop("fingerprint"))
            node_rekey(actor=user, node=node, host_key=key, **values)
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, f"{node.name} has a new host key.")
            return redirect_to(request, reverse("node_detail", args=[pk]))
    shown, problem = None, ""
    try:
        shown = host_key_of(node)
    except RpmError as error:
        problem = error.detail
    facts: dict[str, Any] = {"pinned": pinned_key(node), "shown": shown, "problem": problem}
    return _page(request, "pages/node_rekey.html", node, form, **facts)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def node_remove_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Name the tasks that a removal would stop, and remove the node."""
    user = require_administrator(request)
    node = _node(user, pk)
    form = NodeRemoveForm(_post_data(request))
    status = 400
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            left = node_remove(
                actor=user,
                node=node,
                is_forced=given["force"],
                reason=given["reason"],
                shown=given["shown"],
            )
        except RpmError as error:
            status = error.status
            if isinstance(error, Conflict):
                form.clear_confirmation()
            add_errors(form, error)
        else:
            if left.is_removed:
                say(request, f"{node.name} is removed.")
                return redirect_to(request, reverse("node_list"))
            say(request, f"{node.name} is being removed: its tasks are being stopped.")
            return redirect_to(request, reverse("node_detail", args=[pk]))
    tasks = tasks_on(node)
    # The browser asks for the box that the removal needs; the service refuses without it, too.
    form.fields["force"].widget.attrs["required"] = bool(tasks)
    facts: dict[str, Any] = {"tasks": tasks, "is_silent": node.state != NodeState.HEALTHY}
    return _page(request, "pages/node_remove.html", node, form, status=status, **facts)


def _page(
    request: HttpRequest, template: str, node: Node, form: Any, *, status: int = 400, **more: Any
) -> HttpResponse:
    """`status` is that of a form which was refused."""
    focus_first_error(form)
    context = {"node": node, "form": form, "back": reverse("node_detail", args=[node.pk]), **more}
    is_refused = request.method == "POST"
    return page_or_dialog(request, template, context, status=status if is_refused else 200)


def _post_data(request: HttpRequest) -> QueryDict | None:
    """The sent form; an empty one counts, too."""
    return request.POST if request.method == "POST" else None


def _node(user: User, pk: int) -> Node:
    return get_object_or_404(nodes_visible_to(user), pk=pk)
