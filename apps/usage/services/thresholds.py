"""Changes which policies are marked because they use little of their GPUs."""

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import BadInput
from apps.events.services import event_record
from apps.usage.models import UseThreshold
from apps.usage.selectors.policy_use import use_threshold


@transaction.atomic
def use_threshold_set(*, actor: User | None, gpu_percent: int | None) -> None:
    """Mark policies whose GPU use is below this; None: no policy.

    Raises:
        BadInput: it is not a percentage above 0.
    """
    if gpu_percent is not None and not 1 <= gpu_percent <= 100:
        problem = "must be 1 to 100"
        raise BadInput(f"gpu_percent: {problem}.", fields={"gpu_percent": problem})
    before = use_threshold()
    if before == gpu_percent:
        return
    UseThreshold.objects.update_or_create(id=1, defaults={"gpu_percent": gpu_percent})
    event_record(
        "usage.threshold",
        actor=actor,
        object_type="usage",
        object_id="1",
        data={
            "name": "GPU use" if gpu_percent is None else f"GPU use below {gpu_percent} %",
            "before": {"gpu_percent": before},
            "after": {"gpu_percent": gpu_percent},
        },
        topics=["overview"],
    )
