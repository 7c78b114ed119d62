"""The verb `prune`: removes what is no longer needed on a node that runs for years.

Only what bears this installation and this home is touched, and never what is in use.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from typing import Any, Iterator

from apps.execution.node import files, private_files, request_fields, state_files, task_files
from apps.execution.node.detached_process import detach
from apps.execution.node.image_lookup import RuntimeFailure, find_image
from apps.execution.node.runtimes import run_tool
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder

TOOLS = ("podman", "docker")
DAY_S = 86_400.0
# Earlier versions of the helper, and the logs of pulls.
LEFTOVER_DAYS = 30.0
FAILED_PULL_DAYS = 1.0
DAYS_HIGHEST = 36_500
# Lists wait for the lock of every container, which a client that hangs may hold.
LIST_TIMEOUT_S = 10.0
NAME = re.compile(r"rpm-([a-z0-9]+)-([A-Za-z0-9-]+)-([0-9]{1,16})-([0-9]{1,5})")
# As the runtimes name a volume that nobody named.
ANONYMOUS = re.compile(r"[0-9a-f]{64}")
FOLDER = re.compile(r"([A-Za-z0-9-]+)-([0-9]{1,16})-([0-9]{1,5})")


def prune(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Remove dead containers that no attempt knows, leftovers, and, only if asked, images.

    Also volumes that docker made for such a container and that outlived it.

    Images are those that were pulled or used by this helper, and that nothing has used for
    `images_unused_days`. Answers the names of what was removed.
    """
    days = None
    if request.get("images_unused_days") is not None:
        days = request_fields.number(request, "images_unused_days", highest=DAYS_HIGHEST)
    containers = [name for tool in TOOLS for name in _dead_containers(tool, home, config)]
    for tool in TOOLS:
        _remove_volumes(tool, home, config)
    _remove_leftovers(home, config)
    images = [] if days is None else list(_unused_images(home, config, days))
    return {"containers": containers, "images": images}


def ensure_pruned(home: str, config: dict[str, Any]) -> None:
    """Once a day, in a process of its own: all that `prune` does without options."""
    mark = os.path.join(home, "pruned")
    try:
        is_due = time.time() - os.stat(mark).st_mtime >= DAY_S
    except FileNotFoundError:
        files.write_bytes(mark, b"", durable=False)
        return
    lock = files.take_lock(mark, wait=False) if is_due else None
    if lock is None:
        return
    os.utime(mark)
    detach(home, lambda: _prune_unasked(home, config), keep=(lock,))
    os.close(lock)


def _prune_unasked(home: str, config: dict[str, Any]) -> None:
    prune(home, config, {})


def note_image(home: str, tool: str, image: str) -> None:
    """Remember that an image was used just now; its file's age says when it was last."""
    folder = os.path.join(home, "images")
    name = hashlib.sha256(("%s %s" % (tool, image)).encode()).hexdigest()[:32]
    # On a full disk it counts as unused a little too early.
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        content = {"tool": tool, "image": image}
        files.write_json(os.path.join(folder, name), content, durable=False)


def _dead_containers(tool: str, home: str, config: dict[str, Any]) -> Iterator[str]:
    """Containers of this installation without an attempt's folder; removal is not forced."""
    command = [tool, "ps", "--all", "--format={{.Names}}", *own_labels(home, config)]
    listed = run_tool(command, config, timeout_s=LIST_TIMEOUT_S)
    names = listed.stdout.decode(errors="replace").split() if listed.returncode == 0 else []
    for name in names:
        match = NAME.fullmatch(name)
        # Looked for after the list was made: the folder is there before its container.
        if match is None or _is_known(home, *match.groups()[1:]):
            continue
        if run_tool([tool, "rm", "--volumes", "--", name], config).returncode == 0:
            yield name


def _remove_volumes(tool: str, home: str, config: dict[str, Any]) -> None:
    """Volumes without a name and a container, by our labels; those of users have a name."""
    command = [tool, "volume", "ls", "--quiet", "--filter=dangling=true", *own_labels(home, config)]
    listed = run_tool(command, config, timeout_s=LIST_TIMEOUT_S)
    for name in listed.stdout.decode(errors="replace").split() if listed.returncode == 0 else ():
        # podman 4.3 lists a volume that any one of the filters fits.
        if ANONYMOUS.fullmatch(name) and _is_own_volume(tool, name, home, config):
            # Without force: the runtime refuses where a container has it.
            run_tool([tool, "volume", "rm", "--", name], config)


def _is_own_volume(tool: str, name: str, home: str, config: dict[str, Any]) -> bool:
    command = [tool, "volume", "inspect", "--format={{json .Labels}}", "--", name]
    try:
        labels = json.loads(run_tool(command, config).stdout) or {}
        return bool(_labels(home, config).items() <= labels.items())
    except (ValueError, AttributeError):
        return False


def own_labels(home: str, config: dict[str, Any]) -> list[str]:
    """What makes a runtime list only what bears this installation and this home."""
    return ["--filter=label=%s=%s" % label for label in _labels(home, config).items()]


def _labels(home: str, config: dict[str, Any]) -> dict[str, str]:
    return {"rpm.installation": config["installation"], "rpm.home": home}


def _is_known(home: str, task_id: str, generation: str, rank: str) -> bool:
    return os.path.isdir(
        MemberFolder(home, MemberIdentity(task_id, int(generation), int(rank))).folder
    )


def _unused_images(home: str, config: dict[str, Any], days: float) -> Iterator[str]:
    folder = os.path.join(home, "images")
    in_use = {
        (member.read("spec.json") or {}).get(name)
        for member in state_files.members(home)
        for name in ("image", "reference")
        if not member.has("exit.json")
    }
    for path in _older_than(folder, days):
        kept = files.read_json(path) or {}
        tool, image = str(kept.get("tool")), str(kept.get("image"))
        if image in in_use:
            continue
        try:
            # Earlier helpers noted short names, which could be any image. What the
            # runtime does not find now is noted again when it is used again.
            is_gone = (
                not request_fields.IMAGE.fullmatch(image) or find_image(tool, image, config) is None
            )
        except RuntimeFailure:
            continue
        if is_gone:
            os.unlink(path)
            continue
        # Without force: the runtime itself refuses while any container uses it.
        done = run_tool([tool, "image", "rm", "--", image], config)
        if done.returncode == 0:
            yield image
        if done.returncode == 0 or b"no such image" in done.stderr.lower():
            os.unlink(path)


def _remove_leftovers(home: str, config: dict[str, Any]) -> None:
    """Private folders without an attempt, earlier helpers, logs of old pulls."""
    with contextlib.suppress(OSError):
        root = private_files.private_root(home, config)
        for name in task_files.names_in(root):
            match = FOLDER.fullmatch(name)
            if match and not _is_known(home, *match.groups()):
                task_files.remove(os.path.join(root, name))
    in_use = os.path.realpath(os.path.join(home, "helper"))
    for path in _older_than(home, LEFTOVER_DAYS):
        if os.path.basename(path).startswith("helper-") and os.path.realpath(path) != in_use:
            shutil.rmtree(path, ignore_errors=True)
    old = _older_than(os.path.join(home, "pulls"), LEFTOVER_DAYS)
    for path in _older_than(os.path.join(home, "pulls"), FAILED_PULL_DAYS):
        result = files.read_json(os.path.join(path, "result.json")) or {}
        if path in old or result.get("code") != 0:
            _remove_pull(path)


def _remove_pull(path: str) -> None:
    """The folder of a pull, held meanwhile: nobody begins to fetch in it."""
    with contextlib.suppress(OSError):
        lock = files.take_lock(os.path.join(path, "lock"), wait=False)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _older_than(folder: str, days: float) -> list[str]:
    """What in the folder has not been written to for so many days, by its own dates."""
    before = time.time() - days * DAY_S
    try:
        return sorted(
            entry.path
            for entry in os.scandir(folder)
            if entry.stat(follow_symlinks=False).st_mtime <= before
        )
    except FileNotFoundError:
        return []
