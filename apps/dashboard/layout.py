"""Pages that also open in a dialog of the page that links to them."""

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django_htmx.http import HttpResponseClientRedirect

from apps.core.errors import RpmError
from apps.core.models import Pausable
from apps.dashboard.forms import add_errors
from apps.dashboard.forms_configuration import PauseForm
from apps.dashboard.toasts import Undo, say

# Sent by `load-dialog.js`; a form of the dialog is answered as a page again.
DIALOG = "dialog"


def page_or_dialog(
    request: HttpRequest, template: str, context: Mapping[str, Any], *, status: int = 200
) -> HttpResponse:
    """The whole page, or only the content of the dialog where a page asks for that.

    The template extends `layout` and titles itself with an element `heading`.
    """
    is_dialog = request.headers.get("X-Requested-With") == DIALOG
    frame = {
        "layout": "dialog.html" if is_dialog else "dialog_page.html",
        "heading": "h2" if is_dialog else "h1",
    }
    response = render(request, template, {**context, **frame}, status=status)
    patch_vary_headers(response, ["X-Requested-With"])
    return response


def redirect_to(request: HttpRequest, address: str) -> HttpResponse:
    """To another page, also from a dialog."""
    if request.headers.get("HX-Request"):
        return HttpResponseClientRedirect(address)
    return redirect(address)


def pause_page(
    request: HttpRequest,
    *,
    thing: Pausable,
    what: str,
    sentence: str,
    back: str,
    undo: Callable[[], Undo] | None,
    pause: Callable[[str], object],
) -> HttpResponse:
    """Ask for the reason, then pause.

    Args:
        thing: the row as it is by now; a pause by another, whose reason the page did not show, is
            not overwritten unseen.
        what: name of the pool, queue or node.
        sentence: what the pause will do, in numbers.
        back: address of the page that shows the outcome.
        undo: once it is paused, what ends this pause and restores what was before; not offered
            for a second pause.
        pause: calls the service with the reason.
    """
    form = PauseForm(request.POST or None)
    was_paused = thing.is_paused
    status = 400
    if _is_stale(request, thing):
        status = 409
        words = "It was paused meanwhile: “%s”. Pausing it again replaces this reason."
        form.add_error(None, words % (thing.pause_reason or "no reason given"))
    elif request.method == "POST" and form.is_valid():
        try:
            pause(form.cleaned_data["reason"])
        except RpmError as error:
            add_errors(form, error)
        else:
            offered = None if undo is None or was_paused else undo()
            say(request, f"{what} is paused.", undo=offered)
            return redirect_to(request, back)
    context: dict[str, Any] = {"form": form, "what": what, "sentence": sentence, "back": back}
    context["pause_version"] = _pause_version(thing)
    status = status if request.method == "POST" else 200
    return page_or_dialog(request, "pages/pause.html", context, status=status)


def _is_stale(request: HttpRequest, thing: Pausable) -> bool:
    if request.method != "POST" or not thing.is_paused:
        return False
    return request.POST.get("pause_version") != _pause_version(thing)


def _pause_version(thing: Pausable) -> str:
    """Tells one pause from another; empty where there is none."""
    return f"{thing.paused_at}" if thing.is_paused else ""
