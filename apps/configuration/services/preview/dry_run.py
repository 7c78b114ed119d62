"""Applies a change with its real code, reads the state, and rolls back.

So a preview refuses what provisioning or saving would refuse, and there is only one way from a
document to pools and profiles. The transaction is open only while the two states are read; the
passes run afterwards, on plain data.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.allocation.whatif.steady_state import run_to_rest
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_change, policy_create
from apps.configuration.services.preview.report import Preview, preview_report
from apps.configuration.services.preview.state import PreviewState, state_now
from apps.configuration.services.provision import document_provision
from apps.configuration.services.rows import live_lock
from apps.configuration.services.validation import reservation_warnings
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

    return change_preview(change)


def policy_create_preview(*, actor: User | None, **values: Any) -> Preview:
    """What a new policy would do to the others; raises what `policy_create` raises."""
    return change_preview(lambda: policy_create(actor=actor, **values), reader=actor)


def policy_change_preview(
    *, actor: User | None, policy: Policy, changes: Mapping[str, Any]
) -> Preview:
    """What changing a policy would do; raises what `policy_change` raises."""
    return change_preview(
        lambda: policy_change(actor=actor, policy=policy, changes=changes), reader=actor
    )


def change_preview(change: Callable[[], object], *, reader: User | None = None) -> Preview:
    """What any change would do, which is rolled back; raises what it raises."""
    before, after, warnings = _dry_run(change)
    without = run_to_rest(before.snapshot, returning=before.returning)
    with_change = run_to_rest(after.snapshot, returning=after.returning)
    report = preview_report(before, after, without, with_change, reader=reader)
    # They name policies, which an administrator of a tenant may not see.
    sees_all = reader is None or is_admin(reader)
    return replace(report, warnings=warnings) if sees_all else report


def _dry_run(change: Callable[[], object]) -> tuple[PreviewState, PreviewState, tuple[str, ...]]:
    """The states without and with the change, which is rolled back at once; and new warnings."""
    with transaction.atomic():
        # Before reading, so that nobody else changes anything between the two.
        live_lock()
        before, known = state_now(now=timezone.now()), reservation_warnings()
        change()
        after = state_now(now=timezone.now(), base=before.snapshot)
        warnings = tuple(one for one in reservation_warnings() if one not in known)
        transaction.set_rollback(True)
    return before, after, warnings
