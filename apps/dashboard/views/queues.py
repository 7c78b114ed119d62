"""Queues: the list, one queue, its order, its settings, and where its tasks go."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.access.selectors import (
    queues_managed_by,
    queues_open_to,
    queues_settable_by,
    queues_visible_to,
)
from apps.accounts.models import User
from apps.configuration.services.queues import queue_change, queue_pause, queue_resume
from apps.configuration.services.tenant_checks import queue_settings_of
from apps.core.errors import BadInput, NotAllowed, RpmError
from apps.dashboard.access import person
from apps.dashboard.cards.queues import expected_starts, queue_word
from apps.dashboard.cards.words import plural
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_configuration import QueueChoiceForm, QueueForm
from apps.dashboard.layout import page_or_dialog, pause_page
from apps.dashboard.live import key_id
from apps.dashboard.render import card_render
from apps.dashboard.selectors.tasks import visible_task
from apps.dashboard.toasts import say
from apps.dashboard.undo import change_unless_stale, undo_event
from apps.dashboard.views.history import history_query
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.selectors.visibility import task_permissions
from apps.tasks.services.queue_order import MOVES, task_change_queue, task_reorder
from apps.usage.selectors.waiting_tasks import waiting_by_queue


# permission: every signed-in user; the card shows what they may see
@require_GET
@login_required
def queue_list(request: HttpRequest) -> HttpResponse:
    """The queues that the person sees, filtered by what their names contain."""
    word = queue_word(request.GET.get("q", ""))
    return render(request, "pages/queue_list.html", {"word": word})


# permission: view of the queue
@require_GET
@login_required
def queue_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One queue with its waiting tasks."""
    user = person(request)
    queue = get_object_or_404(queues_visible_to(user), pk=pk)
    context = {
        "queue": queue,
        "history": history_query(request),
        "may_enqueue": queues_open_to(user).filter(pk=pk).exists(),
        "may_manage": queues_managed_by(user).filter(pk=pk).exists(),
        "may_pause": _may_pause(user, queue),
        "may_set": queues_settable_by(user).filter(pk=pk).exists(),
    }
    return render(request, "pages/queue_detail.html", context)


# permission: view of the queue
@require_GET
@login_required
@never_cache
def queue_expected_starts(request: HttpRequest, pk: int) -> HttpResponse:
    """When its first tasks will probably start: the page does not wait for it."""
    queue = get_object_or_404(queues_visible_to(person(request)), pk=pk)
    context = {"starts": expected_starts(queue)}
    return render(request, "components/queue_expected.html", context)


# permission: manage of the queue; the service checks
@require_POST
@login_required
def queue_order(request: HttpRequest, pk: int) -> HttpResponse:
    """Give a waiting task another place; htmx gets the card as it is then."""
    user = person(request)
    queue = get_object_or_404(queues_visible_to(user), pk=pk)
    is_htmx = request.headers.get("HX-Request") == "true"
    try:
        _reorder(user, queue, request.POST.get("move") or request.POST.get("drag") or "")
    except NotAllowed:
        raise
    except RpmError as error:
        messages.error(request, error.detail)
        # The page comes again with the sentence, and with the order as it is.
        if is_htmx:
            return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    card = card_render("queue_waiting", str(pk), user) if is_htmx else None
    return redirect("queue_detail", pk) if card is None else HttpResponse(card.html)


# permission: manage of the queue, and administrators of queues
@require_http_methods(["GET", "POST"])
@login_required
def queue_pause_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask why, and let nothing of the queue be admitted."""
    user = person(request)
    queue = _pausable(user, pk)
    waiting = waiting_by_queue([queue.pk])[queue.pk].count
    return pause_page(
        request,
        thing=queue,
        what=queue.name,
        sentence=(
            "Nothing of this queue is admitted until it is resumed. "
            f"{plural(waiting, 'waiting task')} "
            f"{'keeps its place' if waiting == 1 else 'keep their places'}; "
            "what runs goes on."
        ),
        back=reverse("queue_detail", args=[pk]),
        undo=lambda: undo_event(
            "queue.paused", queue, actor=user, address=reverse("queue_resume", args=[pk])
        ),
        pause=lambda reason: queue_pause(actor=user, queue=queue, reason=reason),
    )


# permission: manage of the queue, and administrators of queues
@require_POST
@login_required
def queue_resume_now(request: HttpRequest, pk: int) -> HttpResponse:
    """Lift the pause."""
    user = person(request)
    queue = _pausable(user, pk)
    if change_unless_stale(
        request, lambda undoes: queue_resume(actor=user, queue=queue, undoes=undoes)
    ):
        say(request, f"{queue.name} admits tasks again.")
    return redirect("queue_detail", pk)


# permission: administrators of queues
@require_http_methods(["GET", "POST"])
@login_required
def queue_settings(request: HttpRequest, pk: int) -> HttpResponse:
    """Settings of a queue, with a sentence about each."""
    user = person(request)
    queue = get_object_or_404(queues_visible_to(user).select_related("policy", "profile"), pk=pk)
    if not queues_settable_by(user).filter(pk=pk).exists():
        raise NotAllowed("Only administrators may change queues.")
    form = QueueForm(request.POST or None, queue=queue, names=queue_settings_of(user, queue))
    if request.method == "POST" and form.is_valid() and _change(form, queue, user):
        say(request, "Saved. It applies from now on.")
        return redirect("queue_detail", pk)
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    context = {"form": form, "queue": queue}
    return render(request, "pages/queue_settings.html", context, status=status)


# permission: the owner, manage of the queue, administrators; the service checks the new queue
@require_http_methods(["GET", "POST"])
@login_required
def task_queue_page(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Choose another queue for a waiting task, and move it there."""
    user = person(request)
    task = _own_or_managed(user, pk)
    open_to_owner = queues_open_to(task.owner).values("pk")
    queues = queues_open_to(user).filter(pk__in=open_to_owner)
    # Another user may have moved it since.
    seen_in = key_id(request.POST["from"]) if "from" in request.POST else task.queue_id
    if seen_in is not None:
        queues = queues.exclude(pk=seen_in)
    queues = queues.select_related("policy", "profile").order_by("name")
    form = QueueChoiceForm(request.POST or None, queues=queues)
    if request.method == "POST" and form.is_valid():
        try:
            _move(request, task, queue=int(form.cleaned_data["queue"]), seen_in=seen_in)
        except RpmError as error:
            add_errors(form, _queue_field_error(error))
        else:
            return redirect("task_detail", pk)
    context = {
        "form": form,
        "task": task,
        "seen_in": seen_in,
        "has_choice": queues.exists(),
        "back": reverse("task_detail", args=[pk]),
    }
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "pages/task_queue.html", context, status=status)


def _move(request: HttpRequest, task: Task, *, queue: int, seen_in: int | None) -> None:
    """Move the task and say so, or say that another user has moved it since it was seen."""
    user = person(request)
    moved = change_unless_stale(
        request,
        lambda undoes: task_change_queue(
            actor=user, task=task, queue=queue, seen_in=seen_in, undoes=undoes
        ),
    )
    if moved is None:
        return
    # To the end of the queue where it waited: its place there is gone.
    back = {"queue": str(seen_in), "from": str(moved.queue_id)}
    address = reverse("task_change_queue", args=[task.pk])
    undo = undo_event(
        "task.moved", moved, actor=user, address=address, fields=back, label="Move back"
    )
    name = moved.queue.name if moved.queue is not None else ""
    say(request, f"{moved.name} waits in {name} now.", undo=undo)


def _reorder(user: User, queue: Queue, words: str) -> None:
    """`top ID`, `up ID`, `down ID`, `bottom ID`, `before ID OTHER` or `after ID OTHER`."""
    move, _, rest = words.partition(" ")
    try:
        ids = [UUID(word) for word in rest.split()]
    except ValueError:
        ids = []
    known = next((one for one in MOVES if one == move), None)
    if known is None or not 1 <= len(ids) <= 2:
        raise BadInput("move is not one that this page sends.", fields={"move": "is unknown"})
    task = Task.objects.filter(pk=ids[0], queue=queue).first()
    if task is None:
        raise BadInput("This task no longer waits here.", fields={"move": "is too late"})
    task_reorder(actor=user, task=task, move=known, other=ids[1] if len(ids) > 1 else None)


def _may_pause(user: User, queue: Queue) -> bool:
    return any(
        rows.filter(pk=queue.pk).exists()
        for rows in (queues_settable_by(user), queues_managed_by(user))
    )


def _pausable(user: User, pk: int) -> Queue:
    queue: Queue = get_object_or_404(queues_visible_to(user), pk=pk)
    if not _may_pause(user, queue):
        raise NotAllowed("You may see this queue, but not manage it.")
    return queue


def _change(form: QueueForm, queue: Queue, user: User) -> bool:
    changes = {name: form.cleaned_data[name] for name in form.changed_data}
    if not changes:
        return True
    try:
        queue_change(actor=user, queue=queue, changes=changes)
    except RpmError as error:
        add_errors(form, error)
        return False
    return True


def _own_or_managed(user: User, pk: UUID) -> Task:
    task = visible_task(user, str(pk))
    if task is None:
        raise Http404
    if not task_permissions(user, task).manage:
        raise NotAllowed("You do not own this task, and you do not manage its queue.")
    return task


def _queue_field_error(error: RpmError) -> RpmError:
    """Show every error of the new queue at the only field of the form."""
    return BadInput(error.detail, fields={"queue": error.detail})
