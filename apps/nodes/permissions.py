"""The permissions on volumes: where their rules are stored, and what gives them without a rule.

`view` mounts a volume read-only, `change` as the volume is. Which volumes tasks of a queue may
mount at all is set in its profile; a rule never gives more than that.
"""

from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q

from apps.access.filters import ALL_ROWS, NO_ROWS
from apps.access.levels import Level, Resource, RuleKind, resource_register
from apps.access.source_kind import (
    ObjectPermission,
    PermissionHolder,
    PermissionSource,
    PermissionSources,
    SourceKind,
)
from apps.access.sources import source_register
from apps.nodes.models import Volume, VolumeGroupPermission, VolumeUserPermission

VIEW, CHANGE = "view", "change"

VOLUMES: Final = Resource(
    RuleKind.VOLUME,
    "nodes",
    Volume,
    VolumeUserPermission,
    VolumeGroupPermission,
    {Level.READ: (VIEW,), Level.MODIFY: (VIEW, CHANGE)},
    has_kind_rules=False,
)


@dataclass(frozen=True, slots=True)
class OpenVolume(SourceKind):
    """A volume that is not restricted: everybody mounts it."""

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.resource.kind is RuleKind.VOLUME

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        return Q(is_restricted=False)

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        return NO_ROWS if row.is_restricted else ALL_ROWS

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        if not row.is_restricted:
            yield PermissionSource("open_volume")


def register() -> None:
    """Tell `apps.access` of the kind and its source; called when Django starts."""
    resource_register(VOLUMES)
    source_register(OpenVolume())
