"""What the pages of vaults show."""

from dataclasses import dataclass
from itertools import islice

from apps.access.vaults import (
    VaultPermissions,
    vault_history,
    vault_permissions,
    vaults_matching_filters,
)
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.events.models import Event
from apps.vaults.models import Vault

# Of other people's, which only administrators see; the others are few by themselves.
MOST_OF_OTHERS = 100
EVENTS = 30


@dataclass(frozen=True, slots=True)
class VaultRow:
    """One line: `up` and `down` are the places it can be moved to, None at the ends."""

    vault: Vault
    permissions: VaultPermissions
    up: int | None
    down: int | None

    @property
    def knows_keys(self) -> bool:
        return self.permissions.read or not self.vault.is_personal

    @property
    def may_switch(self) -> bool:
        return self.permissions.change or (self.permissions.switch_off and self.vault.is_active)


@dataclass(frozen=True, slots=True)
class VaultSection:
    """Vaults that are laid over one another in this order, the last on top."""

    kind: str
    rows: tuple[VaultRow, ...]
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class VaultHistory:
    """Events of a vault, the latest first; `older` continues."""

    events: tuple[Event, ...]
    older: int | None


def vault_sections(user: User, q: str = "") -> list[VaultSection]:
    """One's own, those of groups, and for administrators those of other people; three queries."""
    found = vaults_matching_filters(user, {"q": q}).order_by("position", "pk")
    sections = [
        _section("own", user, list(found.filter(owner=user))),
        _section("group", user, list(found.filter(owner__isnull=True))),
    ]
    others = found.filter(owner__isnull=False).exclude(owner=user).order_by("owner__username", "pk")
    of_others = list(others[: MOST_OF_OTHERS + 1])
    if of_others or is_admin(user):
        sections.append(_section("others", user, of_others[:MOST_OF_OTHERS], len(of_others)))
    return sections


def vault_events(vault: Vault, before: int | None) -> VaultHistory:
    """A page of what was done with it."""
    events = vault_history(vault)
    if before is not None:
        events = events.filter(pk__lt=before)
    rows = list(islice(events.iterator(chunk_size=EVENTS + 1), EVENTS + 1))
    older = rows[EVENTS - 1].pk if len(rows) > EVENTS else None
    return VaultHistory(tuple(rows[:EVENTS]), older)


def _section(kind: str, user: User, vaults: list[Vault], found: int = 0) -> VaultSection:
    rows = []
    for position, vault in enumerate(vaults, start=1):
        permissions = vault_permissions(user, vault)
        is_movable = permissions.own and kind != "others"
        rows.append(
            VaultRow(
                vault=vault,
                permissions=permissions,
                up=position - 1 if is_movable and position > 1 else None,
                down=position + 1 if is_movable and position < len(vaults) else None,
            )
        )
    return VaultSection(kind, tuple(rows), is_cut=found > MOST_OF_OTHERS)
