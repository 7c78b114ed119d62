"""Keeping what vaults hold sealed, and no longer than needed."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from apps.core.resealing import Resealing
from apps.vaults.models import Vault, VaultVersion

KEPT_VERSIONS = 20
_BATCH = 100


def vaults_reseal(resealing: Resealing) -> int:
    """Seal all versions again.

    Returns:
        How many vaults there are.
    """
    rows = VaultVersion.objects.select_related("vault").order_by("pk")
    for row in rows.iterator(chunk_size=_BATCH):
        found = resealing.value(row.sealed_text, row.text_context)
        if found != row.sealed_text:
            # Versions are never changed, only removed.
            VaultVersion.objects.filter(pk=row.pk).update(sealed_text=found)
    return Vault.objects.count()


def vaults_sweep(in_use: Collection[tuple[UUID, int]]) -> int:
    """Remove versions beyond the last `KEPT_VERSIONS`, and vaults that were taken away.

    Args:
        in_use: versions that tasks began with which are not over; they stay.

    Returns:
        How many versions and vaults were removed.
    """
    used_vaults = {vault_id for vault_id, _ in in_use}
    gone = Vault.objects.filter(removed_at__isnull=False).exclude(pk__in=used_vaults)
    count = gone.count()
    gone.delete()
    ranked = VaultVersion.objects.annotate(
        place=Window(RowNumber(), partition_by=F("vault"), order_by=F("version").desc())
    ).filter(place__gt=KEPT_VERSIONS)
    old = [
        pk
        for pk, vault_id, version in ranked.values_list("pk", "vault_id", "version")
        if (vault_id, version) not in in_use
    ]
    VaultVersion.objects.filter(pk__in=old).delete()
    return count + len(old)
