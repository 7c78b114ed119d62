"""Members that run although the helper has no files of them: its journal was lost while they ran.

<home>/attempts/journal.json says on which boot the journal began. One of an earlier boot is
complete: what it does not name cannot run. One that begins may follow another that was lost, so the
runtimes and /proc are asked then, by our labels and by the folder of the home, and again and again
until nothing is left that has no files here. The same where the folder of a member is gone.
"""

from __future__ import annotations

import os
import re
from typing import Any

from apps.execution.node import clocks, files, private_files, processes, prune, state_files
from apps.execution.node.runtimes import run_tool
from apps.execution.node.specs import MemberIdentity

AGAIN_S = 10.0
IDENTITY = re.compile(r"([A-Za-z0-9-]+)-([0-9]{1,16})-([0-9]{1,5})")


def unlisted_members(home: str, config: dict[str, Any]) -> list[MemberIdentity]:
    """What runs on this node for this home and has no files in it."""
    path = os.path.join(home, "attempts", "journal.json")
    journal = _read(path)
    if journal is None:
        state_files.restore_marks(home)
    torn = [one for one in state_files.marked_members(home) if not os.path.isdir(one.folder)]
    names = _stored(journal)
    if journal is None or torn or _is_due(journal):
        listed = {"%s-%d-%d" % one.identity for one in state_files.members(home)}
        running, is_complete = _running(home, config)
        names = sorted(running - listed)
        journal = {
            "boot_id": clocks.boot_id() if journal is None else journal["boot_id"],
            "looked_at_s": clocks.uptime_s(),
            "running": names,
            "is_complete": is_complete,
        }
        files.write_json(path, journal, durable=True)
    for member in torn:
        if "%s-%d-%d" % member.identity not in names:
            state_files.remove_mark(member)
    matches = filter(None, map(IDENTITY.fullmatch, names))
    return [MemberIdentity(one.group(1), int(one.group(2)), int(one.group(3))) for one in matches]


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
    return bool(clocks.uptime_s() - journal["looked_at_s"] > AGAIN_S)


def _running(home: str, config: dict[str, Any]) -> tuple[set[str], bool]:
    """What runs, by task, generation and rank, also with files; and whether all have answered."""
    is_complete = True
    checkpoint = "RPM_CHECKPOINT_FILE=%s/" % private_files.private_root(home, config)
    values = processes.values_of(checkpoint.encode())
    names = {value.partition(b"/")[0].decode(errors="replace") for value in values}
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
