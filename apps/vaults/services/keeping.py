"""Keeping what vaults hold sealed, and no longer than needed."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from apps.core.keyring import reseal
from apps.vaults.models import Vault, VaultVersion

KEPT_VERSIONS = 20
_BATCH = 100


def vaults_reseal() -> int:
    """Seal all versions with the first key of the ring.

    Returns:
        How many vaults there are.

    Raises:
        KeyMissing: some were sealed with a key that is not in the ring.
    """
    rows = VaultVersion.objects.values_list("pk", "sealed_text").order_by("pk")
    for pk, sealed in rows.iterator(chunk_size=_BATCH):
        # Versions are never changed, only removed.
        VaultVersion.objects.filter(pk=pk).update(sealed_text=reseal(sealed))
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
