"""The folder of a task on the volume where it saves its state."""

from __future__ import annotations

import contextlib
import os
import secrets

from apps.execution.node import allowlist, task_files
from apps.execution.node.private_files import ids_of
from apps.execution.node.specs import Spec


def with_folder(spec: Spec, home: str) -> Spec:
    """Make the folder in which the task saves its state, and see whether anything is in it.

    Where we cannot make it, as on a share that refuses root, the task makes it itself. In a
    container we can give it to the task's user only as root. Where others than the nodes may write
    at the top of the volume, the task's user has to be one of them.

    What another user has put in its place is nothing that the task has saved; on a share that
    gives every file to one account that cannot be determined.
    """
    volume = next((one for one in spec.volumes if one.checkpoints), None)
    if volume is None or not allowlist.is_mount(volume.source, home):
        return spec
    folder = os.path.join(volume.source, spec.identity.task_id)
    can_give = os.geteuid() == 0 or spec.runtime == "process"
    ids = ids_of(spec.user)
    is_saved = False
    with contextlib.suppress(OSError):
        if can_give and not volume.read_only:
            task_files.make_folder(folder, ids)
        is_tasks_own = (
            not can_give or task_files.is_owned(folder, ids) or not _keeps_owners(folder, ids)
        )
        is_saved = is_tasks_own and task_files.holds_anything(folder)
    if is_saved or not spec.resume_if_saved:
        return spec
    return spec._replace(environment={**spec.environment, "RPM_RESUME": "0"})


def _keeps_owners(folder: str, ids: tuple[int, int] | None) -> bool:
    """Whether what is created next to this folder keeps the owner that it is given."""
    # Under a name that no user can have guessed. Removed only while it is empty: where others may
    # rename, it can be another folder by then.
    new_folder = "%s.rpm-%s" % (folder, secrets.token_hex(8))
    try:
        task_files.make_folder(new_folder, ids)
        is_kept = task_files.is_owned(new_folder, ids)
        task_files.remove_empty(new_folder)
    except OSError:
        return False
    return is_kept
