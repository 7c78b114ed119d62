"""When a task that is described in the form would start, for each queue that it may go to."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.allocation.whatif.queue_starts import QueueStart, queue_starts
from apps.core.errors import RpmError
from apps.dashboard.access import person
from apps.dashboard.forms import add_errors
from apps.dashboard.forms_tasks import TaskForm
from apps.tasks.task_spec import TaskSpec, spec_of

# The fields that decide when a task starts.
FIELDS = ("gpu", "amounts", "replicas", "priority", "is_preemptible", "time_limit_min")


# permission: every signed-in user, for queues that are open to them
@require_GET
@login_required
@never_cache
def task_queue_starts(request: HttpRequest) -> HttpResponse:
    """The words on the cards of queues: asked for by the form, which does not wait for them."""
    user = person(request)
    form = TaskForm(request.GET, user=user)
    queues = form.queues
    if not form.has_queue_cards:
        queues = [one for one in queues if one.name == form["queue"].value()]
    spec = _spec(form)
    if spec is None:
        words = str(next(iter(form.errors[name][0] for name in FIELDS if name in form.errors), ""))
        starts: tuple[QueueStart, ...] = tuple(QueueStart(one, problem=words) for one in queues)
    else:
        starts = queue_starts(actor=user, queues=queues, spec=spec)
    return render(request, "components/queue_starts.html", {"form": form, "starts": starts})


def _spec(form: TaskForm) -> TaskSpec | None:
    """A task with these amounts; None where one of them will not do."""
    form.full_clean()
    if any(name in form.errors for name in FIELDS):
        return None
    given = form.cleaned_data
    minutes = given["time_limit_min"]
    try:
        return spec_of(
            {
                "name": "new",
                "command": ["true"],
                "request": form.request_values(),
                "replicas": given["replicas"],
                "priority": given["priority"] or 0,
                "is_preemptible": given["is_preemptible"],
                "time_limit_s": minutes * 60 if minutes else None,
            }
        )
    except RpmError as error:
        add_errors(form, error)
    return None
