"""What the commands have in common: where the passphrase comes from."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from rpm import env
from rpm.backups.errors import BackupFailed, path_refused


def add_passphrase(parser: ArgumentParser) -> None:
    """Add the option of a file; as an argument every account could read the passphrase."""
    parser.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="seal with the passphrase in this file; default: RPM_BACKUP_PASSPHRASE, else unsealed",
    )


def passphrase_of(options: dict[str, Any]) -> str:
    """The passphrase, or empty text for none.

    Raises:
        BackupFailed: the file cannot be read, or is empty.
    """
    path: Path | None = options["passphrase_file"]
    if path is None:
        return env.text("RPM_BACKUP_PASSPHRASE")
    try:
        passphrase = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise path_refused(path, "be read", error) from error
    if not passphrase:
        raise BackupFailed(f"{path} is empty.")
    return passphrase
