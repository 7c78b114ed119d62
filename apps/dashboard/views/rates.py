"""What administrators set about usage: rates, and the threshold of low use."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from apps.core.errors import RpmError
from apps.dashboard.access import require_administrator
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_rates import RateForm, UseThresholdForm
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.toasts import say
from apps.usage.models import Rate
from apps.usage.selectors.policy_use import use_threshold
from apps.usage.selectors.rates import currency, first_unbooked_hour, is_removable
from apps.usage.services.rates import rate_create, rate_remove
from apps.usage.services.thresholds import use_threshold_set


# permission: administrators
@require_GET
@login_required
@never_cache
def rate_list(request: HttpRequest) -> HttpResponse:
    """All rates, the latest first; those stay that usage is summed up by."""
    require_administrator(request)
    unbooked = first_unbooked_hour()
    rates = Rate.objects.select_related("pool")
    rows = [(one, is_removable(one, unbooked)) for one in rates]
    return render(request, "usage/rates.html", {"rows": rows, "currency": currency()})


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def use_threshold_page(request: HttpRequest) -> HttpResponse:
    """Which policies the overview marks because they use little of their GPUs."""
    actor, back = require_administrator(request), reverse("overview")
    posted = request.POST if request.method == "POST" else None
    form = UseThresholdForm(posted, initial={"gpu_percent": use_threshold()})
    if request.method == "POST" and form.is_valid():
        use_threshold_set(actor=actor, **form.cleaned_data)
        say(request, "The threshold is saved.")
        return redirect_to(request, back)
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    context = {"form": form, "back": back}
    return page_or_dialog(request, "usage/threshold.html", context, status=status)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def rate_new(request: HttpRequest) -> HttpResponse:
    """Let something cost this from a full hour on."""
    actor, back = require_administrator(request), reverse("rate_list")
    form = RateForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            rate_create(actor=actor, **form.cleaned_data)
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, "The rate is saved.")
            return redirect_to(request, back)
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    context = {"form": form, "back": back}
    return page_or_dialog(request, "usage/rate_form.html", context, status=status)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def rate_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a rate that nothing is summed up by."""
    actor, back = require_administrator(request), reverse("rate_list")
    rate = get_object_or_404(Rate.objects.select_related("pool"), pk=pk)
    context = {"rate": rate, "back": back, "problem": "", "currency": currency()}
    if request.method == "POST":
        try:
            rate_remove(actor=actor, rate=rate)
        except RpmError as error:
            context["problem"] = error.detail
        else:
            say(request, "The rate is removed.")
            return redirect_to(request, back)
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "usage/rate_delete.html", context, status=status)
