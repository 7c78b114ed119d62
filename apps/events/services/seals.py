"""Sealing the audit log: entries that have committed get their place in the chain, one by one."""

from django.db import transaction

from apps.events.chain import entry_facts, entry_hash
from apps.events.models import AuditChain, AuditEntry

BATCH = 500


def audit_seal() -> int:
    """Seal all committed entries; any number of callers take turns.

    A transaction that adds entries never waits for this: only the chain's own row is locked, and
    rows that are committed already.

    Returns:
        How many were sealed.
    """
    sealed = 0
    while found := _seal_some():
        sealed += found
    return sealed


@transaction.atomic
def _seal_some() -> int:
    chain = AuditChain.objects.select_for_update().get_or_create(id=1)[0]
    entries = list(AuditEntry.objects.filter(position__isnull=True).order_by("id")[:BATCH])
    for entry in entries:
        entry.position = chain.length + 1
        entry.previous_hash = chain.head
        entry.hash = entry_hash(entry_facts(entry))
        chain.length, chain.head = entry.position, entry.hash
    if entries:
        AuditEntry.objects.bulk_update(entries, ["position", "previous_hash", "hash"])
        chain.save(update_fields=["length", "head"])
    return len(entries)
