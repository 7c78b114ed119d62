"""Which vaults an attempt runs with, whatever becomes of them meanwhile."""

from uuid import UUID

from apps.tasks.models import Attempt
from apps.tasks.selectors.vaults import used_of
from apps.vaults.selectors.effective import Used, vaults_applying_to


def attempt_note_vaults(*, attempt_id: UUID, owner_id: int) -> list[Used]:
    """Note the vaults of this moment, when the first member of an attempt is to be launched.

    Returns:
        What all of its members are launched with: what was noted first.
    """
    tenant_id = Attempt.objects.values_list("policy__tenant", flat=True).get(pk=attempt_id)
    used = vaults_applying_to(owner_id, tenant_id=tenant_id)
    noted = [[str(vault_id), version] for vault_id, version in used]
    Attempt.objects.filter(pk=attempt_id, vaults__isnull=True).update(vaults=noted)
    kept = Attempt.objects.values_list("vaults", flat=True).get(pk=attempt_id)
    return used_of(kept)
