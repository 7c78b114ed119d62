"""What can go wrong with a backup."""

from pathlib import Path

from apps.core.errors import RpmError
from rpm.env import account_name


class BackupFailed(RpmError):
    """Nothing was changed; the detail names the cause."""

    code = "backup_failed"
    status = 409


def path_refused(path: Path, what: str, error: OSError) -> BackupFailed:
    """An error about a path. Where a permission is missing, it names the account that needs it.

    Args:
        what: what the account cannot do with the path, such as "be read".
    """
    words = f"{path} cannot {what}: {error.strerror or error}."
    if isinstance(error, PermissionError):
        words += f" This command runs as {account_name()}."
    return BackupFailed(words)
