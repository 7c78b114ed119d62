"""Attempts and logs as REST answers them."""

import codecs
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from apps.core.terminal import plain, whole_length
from apps.core.units import milli_text
from apps.tasks.api.query_parameters import LogQuery
from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.models import Attempt, AttemptUse, Member
from apps.tasks.selectors.gpu_use import gpu_use_steps
from apps.tasks.selectors.idle_attempts import IdleRule
from apps.tasks.selectors.vaults import EffectiveVault


def attempt_payload(
    attempt: Attempt, *, has_content: bool, pools: Collection[int]
) -> dict[str, Any]:
    """One admission; fields that the reader may not see are null.

    Args:
        pools: ids of the pools that the reader sees.
    """
    sees_pool = attempt.pool_id in pools
    return {
        "id": attempt.pk,
        "generation": attempt.generation,
        "state": attempt.state,
        "pool": attempt.pool.name if sees_pool else None,
        "request": {key: milli_text(amount) for key, amount in attempt.request.items()},
        "replicas": attempt.replicas,
        "allocated_at": attempt.allocated_at,
        "started_at": attempt.started_at,
        "checkpointed_at": attempt.checkpointed_at,
        "ended_at": attempt.ended_at,
        "exit_code": attempt.exit_code,
        "detail": attempt.detail if has_content else None,
        "image_digest": attempt.image_digest if has_content else None,
        "image_id": attempt.image_id if has_content else None,
        "gpu_use": _gpu_use(attempt),
        "members": [
            _member(member, has_content=has_content, sees_pool=sees_pool)
            for member in attempt.members.all()
        ],
    }


def effective_vault_payload(found: EffectiveVault) -> dict[str, Any]:
    """The values that vaults give a task, each with its origin."""
    origins = {one.origin.vault_id: one.origin for one in found.values}
    return {
        "generation": found.generation,
        "vaults": [
            {
                "id": origin.vault_id,
                "name": origin.name,
                "version": origin.version,
                "kind": "personal" if origin.is_personal else "group",
            }
            for origin in origins.values()
        ],
        "values": [
            {
                "path": one.path,
                "value": one.value,
                "vault": {"id": one.origin.vault_id, "name": one.origin.name},
                "is_enforced": one.origin.is_enforced,
                "is_used": one.is_used,
            }
            for one in found.values
        ],
    }


def log_payload(query: LogQuery) -> dict[str, Any]:
    """Bytes as text, without an incomplete character at the end.

    Terminal control sequences are left out unless the reader asked for the raw text.
    """
    attempt = query.attempt
    is_over = attempt is not None and attempt.state in {AttemptState.FINISHED, AttemptState.LOST}
    # A piece that is nothing but an incomplete character is answered as it is: a reader with a
    # tiny limit must still advance.
    data = query.part.data
    if not query.is_raw:
        data = data[: whole_length(data)] or data
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = decoder.decode(data, final=is_over)
    left, _ = decoder.getstate()
    held_back = len(query.part.data) - len(data) + len(left)
    return {
        "generation": attempt.generation if attempt else None,
        "rank": query.rank,
        "offset": query.part.offset,
        "next_offset": query.part.next_offset - held_back,
        "is_cut": attempt.log_is_cut if attempt else False,
        "is_over": is_over,
        "text": text if query.is_raw else plain(text),
    }


def _gpu_use(attempt: Attempt) -> dict[str, Any] | None:
    use: AttemptUse | None = getattr(attempt, "use", None)
    if use is None:
        return None
    return {
        "percent": use.percent,
        "memory_mb": use.memory_mb,
        "energy_wh": use.energy_wh,
        "sampled_gpu_seconds": use.sampled_ms / 1000,
        "sampled_at": use.sampled_at,
        "idle_since": use.idle_since(attempt.started_at),
    }


def idle_rule_payload(rule: IdleRule) -> dict[str, Any]:
    """What the queue of a task says of idle tasks, and what that means for it now."""
    exemption, warning = rule.exemption, rule.warning
    return {
        "warn_minutes": rule.warn_minutes,
        "stop_minutes": rule.stop_minutes,
        "is_exempt": exemption is not None,
        "exempted_by": exemption.by.username if exemption and exemption.by else None,
        "exempted_at": exemption.at if exemption else None,
        "idle_since": warning.since if warning else None,
        "warned_at": warning.warned_at if warning else None,
        "stop_at": warning.stop_at if warning else None,
    }


def gpu_use_payload(attempt: Attempt | None) -> dict[str, Any]:
    """An attempt's GPUs over time."""
    return {
        "generation": attempt.generation if attempt else None,
        "steps": [asdict(one) for one in gpu_use_steps(attempt)] if attempt else [],
    }


def _member(member: Member, *, has_content: bool, sees_pool: bool) -> dict[str, Any]:
    held = member.held_devices.all() if has_content else []
    return {
        "rank": member.rank,
        "state": member.state,
        "node": member.node.name if sees_pool and member.node else None,
        "ready_at": member.ready_at,
        "detail": member.detail if has_content else None,
        "devices": [one.device.uuid for one in held],
        "exit_code": member.exit_code,
    }
