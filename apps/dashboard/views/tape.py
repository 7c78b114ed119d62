"""The tape: what ran on which GPU, and when the next tasks are expected to start."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.dashboard.access import person
from apps.dashboard.cards.tape import load_tape
from apps.dashboard.cards.tape_query import TapeQuery
from apps.dashboard.cards.tape_starts import load_tape_starts


# permission: every signed-in user, for the pools or policies that they see
@require_GET
@login_required
@never_cache
def tape_page(request: HttpRequest) -> HttpResponse:
    """GPUs as rows, time as columns; zoom and pan are links."""
    wanted = TapeQuery.parse(request.META.get("QUERY_STRING", ""))
    tape = load_tape(person(request), wanted)
    return render(request, "pages/tape.html", {"wanted": wanted, "tape": tape})


# permission: every signed-in user, for the tasks that they see with their queues
@require_GET
@login_required
@never_cache
def tape_starts(request: HttpRequest) -> HttpResponse:
    """When waiting tasks will probably start: the tape asks for it, and does not wait for it."""
    wanted = TapeQuery.parse(request.META.get("QUERY_STRING", ""))
    starts = load_tape_starts(person(request), wanted)
    return render(request, "overview/tape_starts.html", {"starts": starts})
