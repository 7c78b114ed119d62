"""One action on the tasks that are selected in the list."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from apps.core.errors import RpmError
from apps.dashboard.access import person
from apps.dashboard.cards.words import plural
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_bulk import VERBS, BulkForm
from apps.dashboard.selectors.tasks import visible_tasks
from apps.tasks.services.bulk_actions import BulkResult, tasks_act


# permission: every signed-in user; the services check each task
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def task_bulk_page(request: HttpRequest) -> HttpResponse:
    """Ask once with the number of tasks, then do it and show what became of each."""
    user = person(request)
    given = request.POST if request.method == "POST" else request.GET
    verb = given.get("verb", "")
    if verb not in VERBS:
        raise Http404
    tasks = visible_tasks(user, given.getlist("task"))
    if not tasks:
        messages.error(request, "Select tasks in the list first.")
        return redirect("task_list")
    form = BulkForm(request.POST or None, user=user, verb=verb, tasks=tasks)
    if request.method == "POST" and form.is_valid():
        try:
            found = tasks_act(actor=user, ids=[task.pk for task in tasks], action=form.action())
        except RpmError as error:
            add_errors(form, error)
        else:
            done = {"results": found, "heading": _heading(found)}
            return render(request, "pages/task_bulk_results.html", done)
    focus_first_error(form)
    context = {"form": form, "question": form.question}
    status = 400 if request.method == "POST" else 200
    return render(request, "pages/task_bulk.html", context, status=status)


def _heading(found: list[BulkResult]) -> str:
    failed = sum(1 for one in found if one.error is not None)
    done = f"{plural(len(found) - failed, 'task')} changed"
    return f"{done}, {failed} not" if failed else done
