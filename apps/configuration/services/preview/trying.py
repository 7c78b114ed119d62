"""Apply, look, undo: the change is made by the code that will make it, and rolled back.

So a preview refuses what provisioning or saving would refuse, and nothing here knows a second
way from a document to pools and profiles. The transaction is open only while the two states are
read; the passes are run afterwards, on plain data.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.whatif.settling import settle
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_change, policy_create
from apps.configuration.services.preview.state import State, state_now
from apps.configuration.services.preview.told import Preview, told
from apps.configuration.services.provision import document_provision
from apps.configuration.services.rows import live_lock
from apps.policies.document import Document
from apps.policies.models import Policy


def draft_preview(*, actor: User | None, document: Document | None = None) -> Preview:
    """What provisioning would do.

    Args:
        document: previewed instead of the saved draft.

    Raises:
        Conflict: the draft has errors; `fields` names them by path.
        BadInput: the document names a queue or policy that is not there.
    """

    def change() -> None:
        if document is not None:
            draft_write(document=document, actor=actor)
        document_provision(actor=actor)

    return _previewed(change)


def policy_create_preview(*, actor: User | None, **values: Any) -> Preview:
    """What a new policy would do to the others; refused as `policy_create` refuses."""
    return _previewed(lambda: policy_create(actor=actor, **values), reader=actor)


def policy_change_preview(
    *, actor: User | None, policy: Policy, changes: Mapping[str, Any]
) -> Preview:
    """What changing a policy would do; refused as `policy_change` refuses."""
    return _previewed(
        lambda: policy_change(actor=actor, policy=policy, changes=changes), reader=actor
    )


def _previewed(change: Callable[[], object], *, reader: User | None = None) -> Preview:
    before, after = _tried(change)
    without = settle(before.snapshot, returning=before.returning)
    with_it = settle(after.snapshot, returning=after.returning)
    return told(before, after, without, with_it, reader=reader)


def _tried(change: Callable[[], object]) -> tuple[State, State]:
    """The states without and with the change, which is undone at once."""
    with transaction.atomic():
        # Before reading, so that nobody else changes anything between the two.
        live_lock()
        before = state_now(now=timezone.now())
        change()
        after = state_now(now=timezone.now(), base=before.snapshot)
        transaction.set_rollback(True)
    return before, after
