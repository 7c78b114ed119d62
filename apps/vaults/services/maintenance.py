"""Maintenance of stored vaults: sealing, removal, and the data of old versions."""

import time
from collections.abc import Collection
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from apps.core.errors import RpmError
from apps.core.keyring import seal, unseal
from apps.core.resealer import Resealer
from apps.vaults.models import Vault, VaultVersion
from apps.vaults.text.reader import data_text, read

KEPT_VERSIONS = 20
_BATCH = 100
# Each may take half a second, also one that fails.
_READ_AT_ONCE = 20
_READ_S = 10


def vaults_reseal(resealer: Resealer) -> int:
    """Seal all versions again.

    Returns:
        How many vaults there are.
    """
    rows = VaultVersion.objects.select_related("vault").order_by("pk")
    for row in rows.iterator(chunk_size=_BATCH):
        text = resealer.value(row.sealed_text, row.text_context)
        data = resealer.value(row.sealed_data, row.data_context)
        if (text, data) != (row.sealed_text, row.sealed_data):
            # Versions are never changed, only removed.
            same = VaultVersion.objects.filter(pk=row.pk)
            same.update(sealed_text=text, sealed_data=data)
    return Vault.objects.count()


def vaults_remove_unused(in_use: Collection[tuple[UUID, int]]) -> int:
    """Delete versions beyond the last `KEPT_VERSIONS`, and removed vaults.

    Args:
        in_use: versions of tasks that have not ended; they stay.

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


def vaults_store_data() -> int:
    """Store the data of versions that were written before data was stored with the text.

    Returns:
        How many were read; others follow with the next call.
    """
    count, end = 0, time.monotonic() + _READ_S
    rows = VaultVersion.objects.filter(sealed_data="")
    # In random order: versions that always fail must not block the others for ever.
    for pk in rows.order_by("?").values_list("pk", flat=True):
        if count == _READ_AT_ONCE or time.monotonic() > end:
            break
        row = rows.select_related("vault").filter(pk=pk).first()
        if row is None:
            continue
        try:
            text = unseal(row.sealed_text, context=row.text_context)
            data = data_text(read(text, format=row.format, is_stored=True).data)
        except RpmError:
            # Its key is gone, or such a text is not valid any more.
            continue
        VaultVersion.objects.filter(pk=row.pk).update(
            sealed_data=seal(data, context=row.data_context)
        )
        current = Vault.objects.filter(pk=row.vault_id, version=row.version)
        current.update(data_size=len(data.encode()))
        count += 1
    return count
