"""The files of an installation's folder without which its database is worth little."""

import os
import shutil
from pathlib import Path

from django.conf import settings

from apps.nodes.models import Node
from rpm.backups.errors import BackupFailed
from rpm.backups.manifest import (
    HOME,
    KEY_FILES,
    KEY_RING,
    Manifest,
    key_fingerprints,
    may_be_key,
    path_below,
)

BEFORE = ".before-restore"


def collect(folder: Path) -> tuple[list[str], list[str]]:
    """Copy the keys of the installation and of its nodes below `folder`.

    Returns:
        The names of the parts, and the nodes' keys that lie elsewhere and were not copied.
    """
    home: Path = settings.HOME.path
    names = [name for name in KEY_FILES if (home / name).is_file()]
    nodes_keys, elsewhere = set(), []
    used = Node.objects.filter(removed_at__isnull=True).exclude(key_path="")
    for path in sorted(set(used.values_list("key_path", flat=True))):
        if _can_be_restored(Path(path)):
            # Two paths can be the same file: an archive names it once.
            nodes_keys.add(str(Path(path).relative_to(home)))
        else:
            elsewhere.append(path)
    names += sorted(nodes_keys)
    for name in names:
        copy = folder / HOME / name
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(home / name, copy)
    return [HOME + name for name in names], elsewhere


def _can_be_restored(path: Path) -> bool:
    """Whether a restore would put a node's key back there: else no backup takes it."""
    home: Path = settings.HOME.path
    if not path.is_relative_to(home) or not path.is_file():
        return False
    below = str(path.relative_to(home))
    try:
        path_below(home, below)
    except BackupFailed:
        return False
    return may_be_key(below) and _is_private_key(path.read_bytes())


class StagedKeys:
    """Key files of a backup, written next to their places: putting each there is one rename.

    Raises:
        BackupFailed: one of them holds no key, or lies outside of the installation's folder.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        names = [part.name for part in manifest.parts if part.name.startswith(HOME)]
        self._staged: list[tuple[Path, Path]] = []
        # All are checked before anything is written.
        checked = [(_target(name), _content(folder, name)) for name in names]
        for target, content in checked:
            if not target.is_file() or target.read_bytes() != content:
                self._stage(target, content)

    def replaced(self) -> list[Path]:
        """Paths that hold another file now."""
        return [target for _, target in self._staged if target.exists()]

    def put(self) -> list[Path]:
        """Put them in place; earlier files stay next to them."""
        for temporary, target in self._staged:
            if target.exists():
                target.rename(target.with_name(target.name + BEFORE))
            temporary.rename(target)
        return [target for _, target in self._staged]

    def discard(self) -> None:
        """Remove the files that were not put in place."""
        for temporary, _ in self._staged:
            temporary.unlink(missing_ok=True)

    def _stage(self, target: Path, content: bytes) -> None:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._staged.append((temporary, target))
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _target(name: str) -> Path:
    return path_below(settings.HOME.path, name.removeprefix(HOME))


def _content(folder: Path, name: str) -> bytes:
    content = (folder / name).read_bytes()
    if name.removeprefix(HOME) not in KEY_FILES and not _is_private_key(content):
        raise BackupFailed(f"The backup names a file that is no key: {name!r}.")
    return content


def _is_private_key(content: bytes) -> bool:
    return b"PRIVATE KEY" in content


def changed_variables(manifest: Manifest) -> list[str]:
    """Keys from variables that differ from those of the backup."""
    variables = {"secret-key": "RPM_SECRET_KEY", "credential-key": "RPM_CREDENTIAL_KEY"}
    own = key_fingerprints()
    changed = [
        variable
        for name, variable in variables.items()
        if _is_set(variable) and own[name] != manifest.fingerprints.get(name)
    ]
    # Of the ring every key of the backup has to be there, in whatever order; backups of earlier
    # versions name none.
    sealing = set(manifest.fingerprints.get(KEY_RING, "").split())
    if _is_set("RPM_SECRET_KEYS") and not sealing <= set(own[KEY_RING].split()):
        changed.append("RPM_SECRET_KEYS")
    return changed


def keys_by_variable() -> list[str]:
    """Variables that hold keys: the archive does not, so the administrator must keep them."""
    return [
        variable
        for variable in ("RPM_SECRET_KEY", "RPM_CREDENTIAL_KEY", "RPM_SECRET_KEYS")
        if _is_set(variable)
    ]


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable) or os.environ.get(f"{variable}_FILE"))
