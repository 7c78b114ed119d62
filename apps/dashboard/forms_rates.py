"""The form of a rate; its service validates it."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django import forms

from apps.core import clock
from apps.core.units import BUILT_IN_KEYS
from apps.dashboard.forms_base import PageForm
from apps.dashboard.forms_people import DIALOG_ID
from apps.policies.models import Pool
from apps.usage.selectors.bookings import hour_of
from apps.usage.selectors.rates import first_unbooked_hour

HOURS = [(hour, f"{hour:02d}:00") for hour in range(24)]


class UseThresholdForm(PageForm):
    """Below which GPU use policies are marked."""

    gpu_percent = forms.IntegerField(
        min_value=1,
        max_value=100,
        required=False,
        label="GPU use below, in percent",
        help_text="Empty: no policy is marked.",
    )

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **{"auto_id": DIALOG_ID, **given})


class RateForm(PageForm):
    """Price, what it is for, and from which hour on."""

    price = forms.DecimalField(
        max_digits=12,
        decimal_places=4,
        min_value=0,
        label="Price",
        help_text="Of one unit for an hour: a GPU, a CPU, or 1024 MB of memory.",
    )
    key = forms.ChoiceField(label="Resource", initial="gpu")
    pool = forms.ModelChoiceField(
        Pool.objects.none(), required=False, label="Pool", empty_label="All pools"
    )
    model = forms.ChoiceField(required=False, label="GPU model")
    day = forms.DateField(
        label="From day",
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="Usage that is summed up already keeps its rates.",
    )
    hour = forms.TypedChoiceField(choices=HOURS, coerce=int, label="Hour, UTC")

    def __init__(self, *args: Any, **given: Any) -> None:
        first = first_unbooked_hour() or hour_of(clock.now())
        initial = {"day": first.date(), "hour": first.hour}
        super().__init__(*args, **{"auto_id": DIALOG_ID, "initial": initial, **given})
        pools = Pool.objects.filter(removed_at__isnull=True).order_by("name")
        fields: Any = self.fields
        fields["pool"].queryset = pools
        keys = sorted(set().union(*(one.capacity for one in pools)) - set(BUILT_IN_KEYS))
        fields["key"].choices = [(key, key) for key in (*BUILT_IN_KEYS, *keys)]
        models = pools.exclude(nodes__gpu_model="").values_list("nodes__gpu_model", flat=True)
        known = sorted({model for model in models if model})
        fields["model"].choices = [("", "All models"), *((model, model) for model in known)]

    def clean(self) -> dict[str, Any]:
        """The values as `rate_create` takes them."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        day, hour = values.pop("day", None), values.pop("hour", None)
        if day is not None and hour is not None:
            values["valid_from"] = datetime.combine(day, time(), UTC) + timedelta(hours=hour)
        return values
