"""The pages of tasks, and what one can do with them."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.allocation.explanation import expected_start
from apps.allocation.whatif.task_checks import TaskCheck, task_check
from apps.core.errors import NotAllowed, RpmError
from apps.dashboard.access import person
from apps.dashboard.cards.gpu_use import GpuUseCard
from apps.dashboard.cards.logs import log_pieces
from apps.dashboard.cards.start_offers import start_offers
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_priority import PriorityForm
from apps.dashboard.forms_tasks import DraftForm, TaskForm, task_values
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.live import key_id
from apps.dashboard.selectors.access import task_rules
from apps.dashboard.selectors.idle_tasks import IdleQuery
from apps.dashboard.selectors.task_forms import own_task, recent_images
from apps.dashboard.selectors.tasks import visible_task
from apps.dashboard.task_commands import TaskCommands
from apps.dashboard.toasts import say
from apps.tasks.lifecycle.states import ENDED_STATES, TaskState
from apps.tasks.models import Task
from apps.tasks.selectors.attempts import attempts_of
from apps.tasks.selectors.gpu_use import gpu_use_steps
from apps.tasks.selectors.idle_attempts import idle_rule_of, may_be_idle
from apps.tasks.selectors.visibility import task_permissions
from apps.tasks.services.draft_removal import draft_delete
from apps.tasks.services.enqueue.submission import (
    task_change,
    task_create,
    task_enqueue,
    task_resume,
    task_run_again,
    task_submit,
)
from apps.tasks.services.holds import task_hold, task_release
from apps.tasks.services.idle_rules import task_set_idle_exemption
from apps.tasks.services.queue_order import task_set_priority
from apps.tasks.services.queues import can_manage_queue
from apps.tasks.services.stop import task_abort, task_dequeue


# permission: the owner, and view of the queue
@require_GET
@login_required
def task_detail(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One task."""
    user = person(request)
    task = _task_or_404(user, pk)
    permissions = task_permissions(user, task)
    attempt = request.GET.get("attempt", "")
    context = {
        "task": task,
        "permissions": permissions,
        "rules": task_rules(user, task) if permissions.manage else (),
        "may_read_vaults": task.owner_id == user.pk or is_admin(user),
        "log_key": f"{task.pk}/{attempt}" if key_id(attempt) else str(task.pk),
    }
    return render(request, "pages/task_detail.html", context)


# permission: the owner, and view of the queue
@require_GET
@login_required
def task_expected_start(request: HttpRequest, pk: UUID) -> HttpResponse:
    """When it will probably start: asked for by the page, which does not wait for it."""
    user = person(request)
    task = _task_or_404(user, pk)
    expected = expected_start(task)
    now = timezone.now()
    context = {
        "task": task,
        "expected": expected,
        "offers": start_offers(user, task, expected),
        "after": expected.earliest - now if expected and expected.earliest else None,
        "before": expected.latest - now if expected and expected.latest else None,
    }
    return render(request, "components/expected_start.html", context)


# permission: every user who sees the task
@require_GET
@login_required
def task_gpu_use(request: HttpRequest, pk: UUID) -> HttpResponse:
    """How its last attempt uses its GPUs: asked for by the page, which does not wait for it.

    Below it, what its queue says of idle tasks, where that applies to it.
    """
    user = person(request)
    task = _task_or_404(user, pk)
    attempt = attempts_of(task).first()
    rule = idle_rule_of(task) if may_be_idle(task) else None
    context = {
        "card": GpuUseCard.of(attempt, gpu_use_steps(attempt)) if attempt else None,
        "task": task,
        "rule": rule,
        "may_exempt": rule is not None and can_manage_queue(user, task.queue_id),
    }
    return render(request, "components/task_gpu_use.html", context)


# permission: manage of the queue; the service checks
@require_POST
@login_required
def task_idle_rule_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Exempt a task from what its queue says of idle tasks, or end that."""
    is_exempt = request.POST.get("is_exempt") == "1"

    def exempt(*, actor: User, task: Task) -> None:
        task_set_idle_exemption(actor=actor, task=task, is_exempt=is_exempt)
        rule = "may be idle" if is_exempt else "is warned and stopped when idle, as its queue says"
        say(request, f"{task.name} {rule}.")

    return _act(request, pk, exempt)


# permission: every signed-in user, a copy of their own task; the services check the queue
@login_required
def task_form(request: HttpRequest) -> HttpResponse:
    """Describe a task; enqueue it, keep it as a draft, or ask whether it would run now."""
    user = person(request)
    given = request.POST if request.method == "POST" else request.GET
    source = own_task(user, given.get("copy", ""))
    initial: dict[str, Any] = {"is_preemptible": True, "is_restartable": True, "priority": 0}
    if source is not None:
        initial = task_values(source) | {"queue": source.queue.name if source.queue else ""}
    if "queue" in given:
        initial["queue"] = given["queue"]
    form = TaskForm(request.POST or None, initial=initial, user=user, source=source)
    form.explain_hidden_values()
    context: dict[str, Any] = {"form": form, "source": source}
    if request.method == "POST" and form.is_valid():
        if "check" in request.POST:
            context["checked"] = _check(form, user)
        elif "commands" in request.POST:
            context["commands"] = _commands(request, form, user)
        elif (task := _create(form, user)) is not None:
            return redirect("task_detail", task.pk)
    focus_first_error(form)
    is_answered = context.get("checked") or context.get("commands")
    status = 400 if request.method == "POST" and not is_answered else 200
    context["images"] = recent_images(user)
    return render(request, "pages/task_form.html", context, status=status)


# permission: the owner
@require_http_methods(["GET", "POST"])
@login_required
def task_edit_page(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Change what a draft runs."""
    user = person(request)
    task = _own_task_or_404(user, pk)
    if task.state != TaskState.DRAFT:
        messages.error(request, "Only drafts can be edited. Dequeue the task first.")
        return redirect("task_detail", pk)
    form = DraftForm(request.POST or None, task=task, user=user)
    if request.method == "POST" and form.is_valid() and _change(form, user, task):
        say(request, f"{task.name} is saved.")
        return redirect("task_detail", pk)
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    return render(
        request,
        "pages/task_form.html",
        {"form": form, "task": task, "images": recent_images(user)},
        status=status,
    )


# permission: the owner, and enqueue on the queue; the service checks
@require_POST
@login_required
def task_enqueue_draft_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """A draft goes into the queue that the form names."""
    user = person(request)
    task = _own_task_or_404(user, pk)
    try:
        task_enqueue(actor=user, task=task, queue=request.POST.get("queue", ""))
    except RpmError as error:
        messages.error(request, error.detail)
    return redirect("task_detail", pk)


# permission: the owner, manage of the queue, administrators; the service checks
@require_http_methods(["GET", "POST"])
@login_required
def task_abort_page(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Abort a task, then back to its page, or to the list of idle tasks that asked for it."""
    user = person(request)
    task = _task_or_404(user, pk)
    back, idle = reverse("task_detail", args=[pk]), request.GET.get("idle")
    idle = request.POST.get("idle", idle)
    if idle is not None:
        back = f"{reverse('idle_list')}?{IdleQuery.parse(idle).query()}"
    if request.method == "GET":
        if not task_permissions(user, task).manage:
            raise NotAllowed("You do not own this task, and you do not manage its queue.")
        context = {"task": task, "back": back, "idle": idle}
        return page_or_dialog(request, "pages/task_abort.html", context)
    task = task_abort(actor=user, task=task)
    if task.state == TaskState.ABORTED:
        say(request, f"{task.name} is aborted.")
    elif task.state in ENDED_STATES:
        word = TaskState(task.state).label
        messages.error(request, f"Nothing was aborted: {task.name} had ended already ({word}).")
    else:
        say(request, f"{task.name} is being stopped.")
    return redirect_to(request, back)


# permission: the owner, administrators; the service checks
@require_POST
@login_required
def task_delete_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Delete a draft, then go to the list of drafts; back to its page where that is not done."""
    user = person(request)
    task = _task_or_404(user, pk)
    name = task.name
    done = _act(request, pk, draft_delete)
    if Task.objects.filter(pk=pk).exists():
        return done
    say(request, f"Draft {name} is deleted.")
    return redirect_to(request, f"{reverse('task_list')}?view=drafts")


# permission: the owner, manage of the queue, administrators; the service checks
@require_POST
@login_required
def task_dequeue_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """A waiting task becomes a draft again; with `then`, its owner goes on to edit it."""
    done = _act(request, pk, task_dequeue)
    is_draft = Task.objects.filter(pk=pk, owner=person(request), state=TaskState.DRAFT).exists()
    wants_edit = request.POST.get("then") == "edit" and is_draft
    return redirect("task_edit", pk) if wants_edit else done


# permission: the owner, manage of the queue, administrators; the service checks
@require_POST
@login_required
def task_hold_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """No pass starts a waiting task until it is released."""
    return _act(request, pk, task_hold)


# permission: the owner, manage of the queue, administrators; the service checks
@require_POST
@login_required
def task_release_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Passes consider the task again."""
    return _act(request, pk, task_release)


# permission: the owner, manage of the queue, administrators
@require_http_methods(["GET", "POST"])
@login_required
def task_priority_page(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Give a draft or a waiting task another priority."""
    user = person(request)
    task = _task_or_404(user, pk)
    if not task_permissions(user, task).manage:
        raise NotAllowed("You do not own this task, and you do not manage its queue.")
    form = PriorityForm(request.POST or None, task=task)
    back = reverse("task_detail", args=[pk])
    if request.method == "POST" and form.is_valid():
        priority = form.cleaned_data["priority"]
        try:
            task_set_priority(actor=user, task=task, priority=priority)
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, f"{task.name} has priority {priority} now.")
            return redirect_to(request, back)
    status = 400 if request.method == "POST" else 200
    context = {"form": form, "task": task, "back": back}
    return page_or_dialog(request, "pages/task_priority.html", context, status=status)


# permission: the owner, and enqueue on the queue; the service checks
@require_POST
@login_required
def task_run_again_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Enqueue a task that ended once more; an array as a new one, to which it leads."""
    return _act(request, pk, task_run_again)


# permission: the owner, and enqueue on the queue; the service checks
@require_POST
@login_required
def task_resume_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Put a paused or rejected task back into its queue."""
    return _act(request, pk, task_resume)


# permission: the owner, manage of the queue, administrators; the group where its policy opens logs
@require_GET
@login_required
def task_log_download(request: HttpRequest, pk: UUID, generation: int) -> StreamingHttpResponse:
    """The whole log of an attempt, as it was written."""
    user = person(request)
    task = _task_or_404(user, pk)
    if not task_permissions(user, task).log:
        raise Http404
    attempt = get_object_or_404(task.attempts, generation=generation)
    pieces: Iterator[bytes] = log_pieces(attempt)
    name = f"{task.pk}-{generation}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(pieces, content_type="text/plain; charset=utf-8", headers=headers)


def _act(request: HttpRequest, pk: UUID, act: Callable[..., object]) -> HttpResponse:
    """Back to the task's page, with the reason where it could not be done."""
    user = person(request)
    try:
        changed = act(actor=user, task=_task_or_404(user, pk))
        if isinstance(changed, Task):
            return redirect("task_detail", changed.pk)
    except NotAllowed:
        raise
    except RpmError as error:
        messages.error(request, error.detail)
    return redirect("task_detail", pk)


def _create(form: TaskForm, user: User) -> Task | None:
    spec = form.spec()
    if spec is None:
        return None
    try:
        if spec.queue is None:
            return task_create(actor=user, spec=spec)
        return task_submit(actor=user, spec=spec)
    except RpmError as error:
        add_errors(form, error)
        return None


def _change(form: DraftForm, user: User, task: Task) -> bool:
    """Whether the changes are stored; if not, the form says why."""
    if form.is_stale:
        words = "The draft was changed since you opened it. Open it again to see its new values."
        form.add_error(None, words)
        return False
    try:
        changes = form.changes()
        if changes:
            task_change(actor=user, task=task, changes=changes)
    except RpmError as error:
        add_errors(form, error)
        return False
    return True


def _check(form: TaskForm, user: User) -> TaskCheck | None:
    spec = form.spec()
    if spec is None:
        return None
    try:
        return task_check(actor=user, spec=spec)
    except RpmError as error:
        add_errors(form, error)
        return None


def _commands(request: HttpRequest, form: TaskForm, user: User) -> TaskCommands | None:
    spec = form.spec()
    if spec is None:
        return None
    address = request.build_absolute_uri("/").rstrip("/")
    return TaskCommands.of(spec, address=address, own=user.redacted_variables)


def _task_or_404(user: User, pk: UUID) -> Task:
    task = visible_task(user, str(pk))
    if task is None:
        raise Http404
    return task


def _own_task_or_404(user: User, pk: UUID) -> Task:
    return get_object_or_404(Task, pk=pk, owner=user)
