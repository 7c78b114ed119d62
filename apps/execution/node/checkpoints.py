"""The folder of a task on the volume where it saves its state."""

from __future__ import annotations

import contextlib
import os

from apps.execution.node import allowlist, task_files
from apps.execution.node.errors import Refusal
from apps.execution.node.privates import ids_of
from apps.execution.node.specs import Spec


def with_folder(spec: Spec, home: str) -> Spec:
    """Make the folder in which the task saves its state, and see whether anything is in it.

    Where we cannot make it, as on a share that refuses root, the task makes it itself. In a
    container we can give it to the task's user only as root.

    Raises:
        Refusal: somebody else has made it, who would read what the task saves and choose what it
            resumes from.
    """
    volume = next((one for one in spec.volumes if one.checkpoints), None)
    if volume is None or not allowlist.is_mount(volume.source, home):
        return spec
    folder = os.path.join(volume.source, spec.identity.task_id)
    can_give = os.geteuid() == 0 or spec.runtime == "process"
    ids = ids_of(spec.user)
    owner = (ids[0] if ids else os.geteuid()) if can_give else None
    is_saved = False
    try:
        with contextlib.suppress(OSError):
            if can_give and not volume.read_only:
                task_files.make_folder(folder, 0o700, ids)
        is_saved = task_files.holds_anything(folder, owner=owner)
    except task_files.NotOwned:
        raise Refusal(
            "not_allowed", "the checkpoint folder %s is somebody else's" % folder
        ) from None
    except OSError:
        pass
    if is_saved or not spec.resume_if_saved:
        return spec
    return spec._replace(environment={**spec.environment, "RPM_RESUME": "0"})
