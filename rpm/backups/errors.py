"""What can go wrong with a backup."""

from apps.core.errors import RpmError


class BackupFailed(RpmError):
    """Nothing was changed; the detail names the cause."""

    code = "backup_failed"
    status = 409
