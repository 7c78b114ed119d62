"""Members that run although the helper has no files of them: its journal was lost while they ran.

<home>/attempts/journal.json says on which boot the journal began. One of an earlier boot is
complete: what it does not name cannot run. One that begins may follow another that was lost, so the
runtimes are asked then, by our labels, and /proc, for the locks that our own processes next to the
members hold: those stay open when their files are removed, and no task can forge them. They are
asked again until nothing is left that has no files here. The same where a member's folder is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from apps.execution.node import clocks, files, processes, prune, state_files
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.runtimes import run_tool
from apps.execution.node.specs import MemberIdentity, identity_of

AGAIN_S = 10.0
# A client whose service is away does not answer for hours.
INCOMPLETE_AGAIN_S = 300.0
# One report holds no more.
MOST_NAMES = 1000
NAME = re.compile(r"(.+)-([0-9]{1,16})-([0-9]{1,5})")
LOCK = re.compile(r"([^/]+)/([^/]+)/alive(?: \(deleted\))?")


def unlisted_members(home: str, config: dict[str, Any]) -> list[MemberIdentity]:
    """What runs on this node for this home and has no files in it."""
    path = os.path.join(home, "attempts", "journal.json")
    journal = _read(path)
    if journal is None:
        with contextlib.suppress(OSError):
            state_files.restore_marks(home)
    torn = [one for one in state_files.marked_members(home) if state_files.is_torn(one)]
    names = _stored(journal)
    if journal is None or torn or _is_due(journal):
        listed = {"%s-%d-%d" % one.identity for one in state_files.members(home)}
        running, is_complete = _running(home, config)
        names = sorted(one for one in running - listed if _identity(one))[:MOST_NAMES]
        journal = {
            "boot_id": clocks.boot_id() if journal is None else journal["boot_id"],
            "looked_at_s": clocks.uptime_s(),
            "running": names,
            "is_complete": is_complete,
        }
        # A disk that is full keeps nothing: then it is looked for with every exchange.
        with contextlib.suppress(OSError):
            files.write_json(path, journal, durable=True)
    for member in torn:
        if "%s-%d-%d" % member.identity not in names:
            state_files.remove_mark(member)
    return list(filter(None, map(_identity, names)))


def _identity(name: str) -> MemberIdentity | None:
    """Whose name it is; None where a request could not have named it."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    task_id, generation, rank = match.groups()
    try:
        return identity_of({"task_id": task_id, "generation": int(generation), "rank": int(rank)})
    except RequestRefusal:
        return None


def _read(path: str) -> dict[str, Any] | None:
    """None where it is damaged: then it begins again."""
    journal = files.read_json(path) or {}
    is_whole = isinstance(journal.get("boot_id"), str) and isinstance(journal.get("running"), list)
    return journal if is_whole and type(journal.get("looked_at_s")) in (int, float) else None


def _stored(journal: dict[str, Any] | None) -> list[str]:
    """What was found when this home was looked at last; nothing of an earlier boot runs."""
    if journal is None or journal.get("boot_id") != clocks.boot_id():
        return []
    return [str(name) for name in journal["running"]]


def _is_due(journal: dict[str, Any]) -> bool:
    is_settled = not journal["running"] and journal.get("is_complete") is True
    if is_settled or journal["boot_id"] != clocks.boot_id():
        return False
    again_s = AGAIN_S if journal["running"] else INCOMPLETE_AGAIN_S
    return bool(clocks.uptime_s() - journal["looked_at_s"] > again_s)


def _running(home: str, config: dict[str, Any]) -> tuple[set[str], bool]:
    """What runs, by task, generation and rank, also with files; and whether all have answered."""
    is_complete = True
    locks = processes.files_of_ours(os.path.join(os.path.realpath(home), "tasks"))
    names = {"%s-%s" % one.groups() for one in filter(None, map(LOCK.fullmatch, locks))}
    prefix = "rpm-%s-" % config["installation"]
    for tool in prune.TOOLS:
        command = [tool, "ps", "--format={{.Names}}", *prune.own_labels(home, config)]
        listed = run_tool(command, config, timeout_s=prune.LIST_TIMEOUT_S)
        # 127: there is no such runtime.
        is_complete = is_complete and listed.returncode in (0, 127)
        for name in listed.stdout.decode(errors="replace").split():
            if listed.returncode == 0 and name.startswith(prefix):
                names.add(name[len(prefix) :])
    return names, is_complete
