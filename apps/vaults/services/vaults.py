"""Creation, change, order and removal of vaults. Their content is only stored sealed.

A checked vault is locked, and its caller checked what the actor may do with it
(`apps.access.services.vaults`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max, QuerySet, Sum
from django.utils import timezone

from apps.accounts.models import TenantGroup, User
from apps.accounts.selectors import groups_visible_to, is_admin
from apps.core.errors import BadInput, Conflict, NotAllowed
from apps.core.keyring import HIDDEN, seal, unseal
from apps.core.model_errors import from_model_error
from apps.events.services import event_record
from apps.vaults.contents import hidden_names, read_valid
from apps.vaults.layers import EVERYTHING, select_paths
from apps.vaults.models import (
    Vault,
    VaultFormat,
    VaultGroupPermission,
    VaultUserPermission,
    VaultVersion,
)
from apps.vaults.selectors.effective import version_data, version_of, version_text
from apps.vaults.text.reader import data_text, put_back_secrets, stored_secrets

CHANGEABLE = ("name", "format", "text", "enforced")
MOST_PERSONAL = 50
MOST_OF_GROUPS = 200
# Data of active vaults: each launch, and each piece of a log, opens them all.
ACTIVE_BYTES = 1024 * 1024
ACTIVE_BYTES_OF_GROUPS = 4 * 1024 * 1024
MOST_ENFORCED = 100
PATH_LENGTH = 300


@transaction.atomic
def vault_create(
    *,
    actor: User,
    name: str,
    text: str = "",
    format: str = VaultFormat.HOCON,  # noqa: A002  # the column's own name
    group: Group | None = None,
    is_active: bool = False,
    enforced: Sequence[str] = (),
) -> Vault:
    """Create a personal vault, or, as an administrator, one of a group, at the highest position.

    Raises:
        BadInput: naming the field.
        NotAllowed: only administrators create vaults of groups.
    """
    if group is not None and not groups_visible_to(actor).filter(pk=group.pk).exists():
        raise NotAllowed("Only administrators create vaults of groups.")
    vault = Vault(owner=None if group else actor, group=group, is_active=is_active, version=0)
    most = MOST_PERSONAL if group is None else MOST_OF_GROUPS
    if _counted_with(vault).count() >= most:
        raise Conflict(f"There are {most} vaults already: remove one, or put two into one.")
    vault.position = (_ordered_with(vault).aggregate(last=Max("position"))["last"] or 0) + 1
    values = {"name": name, "format": format, "text": text, "enforced": list(enforced)}
    _write(vault, actor=actor, changes=values)
    _record("vault.created", vault, actor=actor, after=_event_data(vault))
    return vault


def checked_vault_change(*, actor: User, vault: Vault, changes: Mapping[str, Any]) -> None:
    """Change some of `CHANGEABLE`; stars in the text stand for the secrets that are stored.

    Raises:
        BadInput: naming the field.
    """
    before = _event_data(vault)
    if _write(vault, actor=actor, changes=changes):
        _record("vault.changed", vault, actor=actor, before=before, after=_event_data(vault))


def restoring_changes(vault: Vault, to: int) -> dict[str, Any]:
    """The changes that restore text, format, enforced entries and secrets of version `to`.

    Raises:
        BadInput: that version is not kept any more, or is the current one.
    """
    old = version_of(vault, to)
    if old is None or to == vault.version:
        problem = "is not kept any more" if old is None else "is the current one"
        raise BadInput(f"Version {to} {problem}.", fields={"to": problem})
    text = unseal(old.sealed_text, context=old.text_context)
    changes: dict[str, Any] = {"text": text, "format": old.format}
    return changes if old.enforced == vault.enforced else {**changes, "enforced": old.enforced}


def checked_vault_restore(
    *, actor: User, vault: Vault, to: int, changes: Mapping[str, Any]
) -> None:
    """Make the `restoring_changes` of version `to`; name, place and switch stay."""
    checked_vault_change(actor=actor, vault=vault, changes=changes)
    _record("vault.restored", vault, actor=actor, restored_version=to)


def checked_vault_switch(*, actor: User, vault: Vault, is_active: bool) -> None:
    """Switch a vault on or off for tasks that are launched from now on."""
    if vault.is_active == is_active:
        return
    vault.is_active = is_active
    if is_active:
        _check_active(vault, field="is_active")
    vault.save(update_fields=["is_active"])
    kind = "vault.enabled" if is_active else "vault.disabled"
    before, after = {"is_active": not is_active}, {"is_active": is_active}
    _record(kind, vault, actor=actor, before=before, after=after)


def checked_vault_move(*, actor: User, vault: Vault, position: int) -> Vault:
    """Move a vault to a position (1 is the lowest) of its kind."""
    same_order = _ordered_by(actor, vault).select_for_update(of=("self",))
    rows = list(same_order.order_by("position", "pk"))
    # Administrators of a tenant redistribute the positions that their vaults have among all.
    positions = [one.position for one in rows]
    if vault.is_personal or is_admin(actor):
        positions = list(range(1, len(rows) + 1))
    before = [one.pk for one in rows].index(vault.pk) + 1
    moved = rows.pop(before - 1)
    after = max(1, min(position, len(rows) + 1))
    rows.insert(after - 1, moved)
    for stored, one in zip(positions, rows, strict=True):
        if one.position != stored:
            Vault.objects.filter(pk=one.pk).update(position=stored)
    if after != before:
        changed = {"before": {"position": before}, "after": {"position": after}}
        _record("vault.moved", moved, actor=actor, **changed)
    moved.position = after
    return moved


def checked_vault_remove(*, actor: User, vault: Vault) -> None:
    """Remove a vault; tasks that started with it keep their values."""
    vault.removed_at, vault.is_active = timezone.now(), False
    vault.save(update_fields=["removed_at", "is_active"])
    VaultUserPermission.objects.filter(content_object=vault).delete()
    VaultGroupPermission.objects.filter(content_object=vault).delete()
    _record("vault.removed", vault, actor=actor, before=_event_data(vault))


def _ordered_by(user: User, vault: Vault) -> QuerySet[Vault]:
    """The vaults in the same order, as far as this user may order them."""
    live = Vault.objects.filter(removed_at__isnull=True)
    if vault.is_personal:
        return live.filter(owner=vault.owner)
    return live.filter(group__in=groups_visible_to(user).values("pk"))


def _ordered_with(vault: Vault) -> QuerySet[Vault]:
    """The vaults in the same order."""
    live = Vault.objects.filter(removed_at__isnull=True)
    return live.filter(owner=vault.owner) if vault.is_personal else live.filter(group__isnull=False)


def _counted_with(vault: Vault) -> QuerySet[Vault]:
    """The vaults that share its bound: a tenant's groups have a bound of their own.

    Otherwise a tenant could use up the bound of others, and would learn how many they have.
    """
    if vault.is_personal:
        return _ordered_with(vault)
    tenant = TenantGroup.objects.filter(group=vault.group).values_list("tenant", flat=True).first()
    return _ordered_with(vault).filter(group__belongs__tenant=tenant)


def _write(vault: Vault, *, actor: User, changes: Mapping[str, Any]) -> bool:
    """Store the next version of the vault; False where nothing changed."""
    stored = version_of(vault, vault.version)
    text = "" if stored is None else unseal(stored.sealed_text, context=stored.text_context)
    before = (vault.name, vault.format, vault.enforced, text)
    vault.format, given = _format(changes.get("format", vault.format)), changes.get("text", text)
    if stored is not None and vault.format == stored.format and _is_same(given, text, stored):
        data = version_data(stored)
    else:
        text, data = _text(given, vault.format, stored)
    vault.name = str(changes.get("name", vault.name)).strip()
    vault.enforced = _enforced(changes.get("enforced", vault.enforced), vault, data)
    if stored is not None and before == (vault.name, vault.format, vault.enforced, text):
        return False
    written, counted = data_text(data), vault.data_size
    vault.data_size = len(written.encode())
    if vault.is_active and vault.data_size > counted:
        _check_active(vault, field="text")
    vault.summary = sorted(data)
    vault.size = len(text.encode())
    vault.version += 1
    vault.updated_at, vault.updated_by = timezone.now(), actor
    try:
        vault.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    vault.save()
    stored = VaultVersion(
        vault=vault,
        version=vault.version,
        format=vault.format,
        enforced=vault.enforced,
        at=vault.updated_at,
        by=actor,
    )
    stored.sealed_text = seal(text, context=stored.text_context)
    stored.sealed_data = seal(written, context=stored.data_context)
    stored.save(force_insert=True)
    return True


def _is_same(given: str, text: str, stored: VaultVersion) -> bool:
    """Whether the given text is the stored one, in clear or as a reader sees it.

    Such a text need not satisfy bounds that are newer than it.
    """
    return given == text or (HIDDEN in given and given == version_text(stored))


def _text(given: str, format_: str, stored: VaultVersion | None) -> tuple[str, Mapping[str, Any]]:
    """The text to store for a given one, with its data.

    The stored version is only read for its secrets, so an unreadable one can be replaced.
    """
    seen = read_valid(given, format=format_)
    secrets: Mapping[str, str] = {}
    if stored is not None and hidden_names(seen.data):
        secrets = stored_secrets(version_data(stored))
    text = put_back_secrets(given, seen, secrets)
    return text, seen.data if text == given else read_valid(text, format=format_).data


def _check_active(vault: Vault, *, field: str) -> None:
    """Refuse a change that would make active vaults too large for tasks."""
    most = ACTIVE_BYTES if vault.is_personal else ACTIVE_BYTES_OF_GROUPS
    others = _counted_with(vault).filter(is_active=True).exclude(pk=vault.pk)
    total = (others.aggregate(total=Sum("data_size"))["total"] or 0) + vault.data_size
    if total > most:
        problem = f"makes active vaults hold {total} bytes: at most {most} in all"
        raise BadInput(f"{field} {problem}.", fields={field: problem})


def _format(given: str) -> str:
    if given not in VaultFormat.values:
        problem = f"must be one of {', '.join(VaultFormat.values)}"
        raise BadInput(f"format {problem}.", fields={"format": problem})
    return given


def _enforced(given: Sequence[str], vault: Vault, data: Mapping[str, Any]) -> list[str]:
    """The paths, each once; every one of them is a key of the text."""
    paths = list(dict.fromkeys(path.strip() for path in given if path.strip()))
    problem = ""
    if paths and vault.is_personal:
        problem = "is for vaults of groups only"
    elif len(paths) > MOST_ENFORCED or any(len(path) > PATH_LENGTH for path in paths):
        problem = f"has up to {MOST_ENFORCED} paths of up to {PATH_LENGTH} characters"
    else:
        unknown = [one for one in paths if one != EVERYTHING and not select_paths(data, [one])]
        if unknown:
            problem = f"names {unknown[0]!r}, which is no key of the text (* is everything)"
    if problem:
        raise BadInput(f"enforced {problem}.", fields={"enforced": problem})
    return paths


def _event_data(vault: Vault) -> dict[str, Any]:
    """The event data of a vault: never its text."""
    return {
        "name": vault.name,
        "owner": vault.owner.username if vault.owner else None,
        "group": vault.group.name if vault.group else None,
        "format": vault.format,
        "is_active": vault.is_active,
        "enforced": vault.enforced,
        "keys": vault.summary,
        "size": vault.size,
        "version": vault.version,
    }


def _record(kind: str, vault: Vault, *, actor: User | None, **data: Any) -> None:
    event_record(
        kind,
        actor=actor,
        object_type="vault",
        object_id=vault.pk,
        data={"name": vault.name, "version": vault.version, "keys": vault.summary, **data},
    )
