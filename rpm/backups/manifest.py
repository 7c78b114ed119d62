"""What a backup says about itself."""

import re
import tomllib
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath

from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from msgspec import MsgspecError, Struct, json

from apps.core import keyring
from apps.core.resealer import is_bound
from apps.nodes.models import Installation
from rpm.backups.errors import BackupFailed

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES = 4 * 1024 * 1024
# Seals secrets of tasks and passwords of registries; several keys, the one in use first.
KEY_RING = "key-ring"


# Below the archive; what follows is the path below the installation's folder.
HOME = "home/"
DATABASE_FILES = frozenset({"database.sqlite3", "database.dump"})
KEY_FILES = ("secret-key", "credential-key", KEY_RING)
# What else RPM keeps in the installation's folder: no key goes there.
_OTHER_FILES = re.compile(
    r"static(/.*)?"
    r"|node-(h100|bare-metal)(/.*)?"  # the demonstration's nodes
    # What the helper of any other node keeps: its program and settings, and what it works on.
    r"|(.*/)?(helper(-[0-9a-f]{16})?(/.*)?|config\.json)"
    r"|node-[^/]+/(identity|serial\.json|(attempts|images|preflight|pulls|tasks|waiters)/.*)"
    r"|backups/[^/]*\.(rpm|backup)"
    r"|(.*/)?[^/]*\.sqlite3[^/]*"
    r"|beat-schedule[^/]*|redis\.(sock|log)|up\.lock|seals-bound|demonstration-logins\.json"
    # What SSH reads, and runs, in the folder of an account.
    r"|(.*/)?\.ssh/(authorized_keys[^/]*|config|environment|known_hosts[^/]*|rc)(/.*)?",
    re.DOTALL,
)
# Other hidden folders hold programs and settings of an account.
_HIDDEN_FOLDER_OF_KEYS = re.compile(r"\.[\w-]*(ssh|key|secret|private)[\w-]*")


class BackupPart(Struct, frozen=True):
    """One file of the archive."""

    name: str
    size: int
    sha256: str


class Manifest(Struct, frozen=True):
    """First in every archive.

    `migrations` are those that had been applied, by app. `fingerprints` name keys without revealing
    them, also those that came from variables and are not in the archive. `elsewhere` are the
    private keys of nodes that lie outside the installation's folder, or where no restore would put
    a key: they are not in it either.
    """

    format: int
    version: str
    made_at: datetime
    installation: str
    home: str
    database: str
    server_version: int
    migrations: dict[str, list[str]]
    fingerprints: dict[str, str]
    elsewhere: list[str]
    parts: list[BackupPart]
    # Backups of earlier versions hold sealed values that are bound to no place.
    are_seals_bound: bool = False


def describe(parts: list[BackupPart], *, elsewhere: list[str]) -> Manifest:
    """The manifest of a backup that is being made now."""
    applied: dict[str, list[str]] = {}
    for app, name in sorted(MigrationLoader(connection).applied_migrations):
        applied.setdefault(app, []).append(name)
    return Manifest(
        format=FORMAT,
        version=version(),
        made_at=datetime.now(UTC),
        home=str(settings.HOME.path),
        installation=Installation.objects.values_list("key", flat=True).get(id=1),
        database=connection.vendor,
        server_version=getattr(connection, "pg_version", 0),
        migrations=applied,
        fingerprints=key_fingerprints(),
        elsewhere=elsewhere,
        parts=parts,
        are_seals_bound=is_bound(),
    )


def read_manifest(content: bytes) -> Manifest:
    """Raises BackupFailed where this is no manifest that this version understands."""
    try:
        manifest = json.decode(content, type=Manifest)
    except MsgspecError as error:
        raise BackupFailed(f"The manifest of the backup cannot be read: {error}.") from error
    if manifest.format != FORMAT:
        raise BackupFailed(f"The backup has format {manifest.format}; this RPM reads {FORMAT}.")
    for part in manifest.parts:
        if part.name not in DATABASE_FILES and not _is_of_home(part.name):
            raise BackupFailed(f"The backup names a file that is none of RPM: {part.name!r}.")
    return manifest


def _is_of_home(name: str) -> bool:
    """Whether a part can be one of RPM's own keys, or the private key of a node."""
    below = name.removeprefix(HOME)
    return name.startswith(HOME) and (below in KEY_FILES or may_be_key(below))


def may_be_key(below: str) -> bool:
    """Whether a node's key may lie there, below the installation's folder.

    A backup takes no other, and a restore accepts no other.
    """
    *folders, file = below.split("/")
    is_hidden = file.startswith(".") or any(
        folder.startswith(".") and not _HIDDEN_FOLDER_OF_KEYS.fullmatch(folder)
        for folder in folders
    )
    return not is_hidden and below not in KEY_FILES and not _OTHER_FILES.fullmatch(below)


def path_below(folder: Path, name: str) -> Path:
    """Where a name of the backup lies below the folder, links on the way followed.

    Raises:
        BackupFailed: it lies elsewhere, or is not written in the one way that a backup writes it.
    """
    plain = PurePosixPath(name)
    root = folder.resolve()
    parent = (root / plain).parent.resolve()
    is_plain = name == str(plain) and not plain.is_absolute() and plain.name not in {"", ".."}
    if not is_plain or ".." in plain.parts or "\0" in name or not parent.is_relative_to(root):
        raise BackupFailed(f"The backup names a file outside of itself: {name!r}.")
    return parent / plain.name


def check_fits(manifest: Manifest) -> None:
    """Whether this installation can go on with what the backup holds.

    Raises:
        BackupFailed: it is of the other kind of database, or of another version.
    """
    if manifest.database != connection.vendor:
        raise BackupFailed(
            f"The backup is of {manifest.database}, and DATABASE_URL names {connection.vendor}."
        )
    known = MigrationLoader(None).disk_migrations
    unknown = [
        f"{app}.{name}"
        for app, names in manifest.migrations.items()
        for name in names
        if (app, name) not in known
    ]
    if unknown:
        raise BackupFailed(
            f"The backup was made by RPM {manifest.version}; this version ({version()}) does not "
            f"have the migration {unknown[-1]}. Install the version that made it first."
        )


def key_fingerprints() -> dict[str, str]:
    """Fingerprints of the keys that this process uses; the keys cannot be derived from them."""
    keys = {"secret-key": settings.SECRET_KEY, "credential-key": settings.RPM_CREDENTIAL_KEY}
    own = {name: fingerprint(key) for name, key in keys.items()}
    ring = keyring.keys()
    return {**own, KEY_RING: " ".join(map(fingerprint, ring))}


def fingerprint(key: str) -> str:
    """The beginning of a hash: keys of 32 characters or more cannot be guessed from it."""
    return sha256(b"rpm backup " + key.encode()).hexdigest()[:16]


def version() -> str:
    """The version of RPM that lies in this folder."""
    try:
        content = (Path(settings.BASE_DIR) / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    return str(tomllib.loads(content)["project"]["version"])
