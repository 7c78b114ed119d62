"""The vaults that an attempt runs with, even if they change later."""

from uuid import UUID

from apps.tasks.models import Attempt
from apps.tasks.selectors.vaults import vault_refs_of
from apps.vaults.selectors.effective import VaultRef, vaults_applying_to


def attempt_note_vaults(*, attempt_id: UUID) -> list[VaultRef]:
    """Note the vaults that apply when the first member of an attempt is launched.

    Returns:
        The vaults that all members are launched with: those that were noted first.
    """
    facts = Attempt.objects.values_list("task__owner", "policy__tenant", "task__is_by_owner")
    owner_id, tenant_id, is_by_owner = facts.get(pk=attempt_id)
    used = vaults_applying_to(owner_id, tenant_id=tenant_id, is_by_owner=is_by_owner)
    noted = [[str(vault_id), version] for vault_id, version in used]
    Attempt.objects.filter(pk=attempt_id, vaults__isnull=True).update(vaults=noted)
    kept = Attempt.objects.values_list("vaults", flat=True).get(pk=attempt_id)
    return vault_refs_of(kept)
