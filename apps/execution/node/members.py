"""The verbs about one member: launch, stop, forget."""

from __future__ import annotations

import os
import select
import shutil
from typing import Any

from apps.execution.node import (
    allowlist,
    callbacks,
    checkpoints,
    clocks,
    files,
    images,
    leases,
    request_fields,
    state_files,
    supervisor,
)
from apps.execution.node.cleanup import is_clean
from apps.execution.node.crash_points import crash_point
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.results import note_exit
from apps.execution.node.specs import MemberIdentity, Spec, identity_of, refuse_process, spec_of
from apps.execution.node.state_files import MemberFolder
from apps.execution.node.stopper import ensure_stopper

START_WAIT_HIGHEST_S = 120


def launch(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Start a member exactly once, however often the same request comes.

    Refuses (code): `other_boot`, `late`, `fenced` (a newer generation is known), `ended` (this
    member is over), `older_alive`, `not_allowed`, `image_missing`, `start_failed`, `invalid`.
    """
    spec = spec_of(request)
    callback = callbacks.callback_of(request["spec"])
    refuse_process(request["spec"], spec.runtime)
    wait_s = request_fields.number(request, "start_wait_s", highest=START_WAIT_HIGHEST_S)
    lease_until_s = _lease_of(request)
    member = MemberFolder(home, spec.identity)
    change = None
    with files.locked(state_files.task_lock(home, spec.identity.task_id)):
        # Checked under the lock: its last holder may have taken long.
        _refuse_other_time(request)
        _refuse_behind_fence(home, spec.identity)
        is_known = _is_known(member)
        is_begun = member.has("starting") or member.has("exit.json")
        if not is_begun:
            # Also where an earlier launch was allowed: this one may ask for something else.
            allowlist.check(spec, home)
            spec = checkpoints.with_folder(spec, home)
        if not is_known:
            state_files.raise_fence(home, spec.identity, ended=False)
            crash_point("node.launch.fenced")
            state_files.add(member)
            if callback is not None:
                callbacks.keep(member, callback)
            _write_spec(member, spec, lease_until_s)
            crash_point("node.launch.noted")
        elif lease_until_s is not None:
            leases.lengthen(member, lease_until_s)
        if not is_begun:
            change = supervisor.launch(member, spec, config)
    if change is not None:
        # Without the lock: a start may take long, and renewals and stops do not wait for it.
        select.select([change], [], [], wait_s)
        os.close(change)
        crash_point("node.launch.answering")
    return _outcome(member)


def stop(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Ask a member to end: callback, SIGTERM, SIGKILL after the grace period. Returns at once.

    With `is_kill` it is SIGKILL now.
    A member that the node does not know, or of an earlier boot, is fenced: a launch on its way is
    refused, and nothing is signalled.
    """
    identity = identity_of(request)
    grace_s = request_fields.number(request, "grace_s", highest=86_400)
    member = MemberFolder(home, identity)
    with files.locked(state_files.task_lock(home, identity.task_id)):
        if member.has("exit.json"):
            return {"state": "exited"}
        if not member.exists() or not state_files.is_of_this_boot(member):
            state_files.raise_fence(home, identity, ended=True)
            return {"state": "absent"}
        _write_stop(member, grace_s, is_kill=request.get("is_kill") is True)
        crash_point("node.stop.noted")
        if not member.is_supervised() and not member.has("starting"):
            note_exit(member, config, None, "stopped before it started")
            return {"state": "exited"}
        ensure_stopper(member, config)
    return {"state": "stopping"}


def forget(home: str, _config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Remove what is kept of tasks that are over for good, their fences included.

    Until then a launch that was delayed somewhere could still arrive; the caller waits until its
    `not_after` is long past. A task with a living member is left alone.
    """
    forgotten = []
    for item in request_fields.records(request, "tasks", most=1000):
        task_id = request_fields.text(item, "task_id", request_fields.IDENTIFIER)
        generation = request_fields.whole(item, "generation", lowest=1, highest=2**53)
        with state_files.decided(home, task_id) as is_free:
            if not is_free:
                continue
            is_newer = state_files.read_fence(home, task_id).generation > generation
            if not is_newer and not state_files.members_of(home, task_id):
                shutil.rmtree(os.path.join(home, "tasks", task_id))
                forgotten.append(task_id)
    return {"forgotten": forgotten}


def acknowledge(home: str, identity: MemberIdentity) -> bool:
    """The database has the result of this member: remove all but the fence.

    False while the removal of its container still needs its files.
    """
    member = MemberFolder(home, identity)
    if not member.exists():
        return True
    with state_files.decided(home, identity.task_id) as is_free:
        # The member stays in the report, so the acknowledgement comes again.
        is_over = member.has("exit.json") and is_clean(member) and not member.is_supervised()
        if not is_free or not is_over:
            return False
        crash_point("node.finish.acknowledged")
        state_files.remove(member)
        return True


def _refuse_other_time(request: dict[str, Any]) -> None:
    boot_id = clocks.boot_id()
    if request.get("boot_id") != boot_id:
        raise RequestRefusal("other_boot", "the node has booted since; its boot is %s" % boot_id)
    not_after = request_fields.number(request, "not_after_s", highest=1e10)
    late_s = clocks.uptime_s() - not_after
    if late_s > 0:
        raise RequestRefusal("late", "the launch came %.3f s after its last moment" % late_s)
    lease_until_s = _lease_of(request)
    if lease_until_s is not None and lease_until_s <= clocks.uptime_s():
        raise RequestRefusal("late", "the lease that came with the launch is over")


def _refuse_behind_fence(home: str, identity: MemberIdentity) -> None:
    fence = state_files.read_fence(home, identity.task_id)
    if fence.generation == state_files.UNKNOWN:
        raise RequestRefusal("fenced", "the task's fence.json on the node cannot be read")
    if identity.generation < fence.generation:
        raise RequestRefusal("fenced", "generation %d is known here" % fence.generation)
    if identity.generation == fence.generation and identity.rank in fence.ended:
        raise RequestRefusal("ended", "this member has ended or was stopped before it came")
    for member in state_files.members_of(home, identity.task_id):
        is_older = member.identity.generation < identity.generation
        if is_older and state_files.is_of_this_boot(member) and not member.has("exit.json"):
            raise RequestRefusal(
                "older_alive", "generation %d has not ended" % member.identity.generation
            )


def _is_known(member: MemberFolder) -> bool:
    if not member.exists():
        return False
    if not state_files.is_of_this_boot(member):
        raise RequestRefusal("other_boot", "this member was launched before the node booted")
    return True


def _lease_of(request: dict[str, Any]) -> float | None:
    if request.get("lease_until_s") is None:
        return None
    return request_fields.number(request, "lease_until_s", highest=1e10)


def _write_spec(member: MemberFolder, spec: Spec, lease_until_s: float | None) -> None:
    """Note what is kept of the specification; values of variables are not."""
    if lease_until_s is not None:
        leases.grant(member, lease_until_s)
    kept = {
        "boot_id": clocks.boot_id(),
        "runtime": spec.runtime,
        "image": spec.image,
        "reference": spec.reference,
        "devices": [device.uuid for device in spec.devices],
        "secrets": sorted(spec.secrets),
        "user": spec.user,
        "working_dir": spec.working_dir,
    }
    # After a power cut it says that this was another boot, and what of it is to be removed.
    member.write("spec.json", kept, durable=True)


def _write_stop(member: MemberFolder, grace_s: float, *, is_kill: bool) -> None:
    """By when it shall end: its callback first, then the grace period.

    A second stop can shorten that, never lengthen it; without a grace period it ends the callback.
    """
    now = clocks.uptime_s()
    kept = member.read("stop.json")
    callback_until_s = now + callbacks.timeout_s(member)
    if kept is not None:
        callback_until_s = float(kept.get("callback_until_s", now))
        is_kill = is_kill or (grace_s == 0 and kept.get("grace_s", 0) > 0)
    if is_kill:
        callback_until_s = now
        grace_s = 0
    deadline_s = max(callback_until_s, now) + grace_s
    if kept is not None:
        deadline_s = min(deadline_s, kept["deadline_uptime_s"])
    stop = {
        "callback_until_s": callback_until_s,
        "deadline_uptime_s": deadline_s,
        "grace_s": grace_s,
    }
    member.write("stop.json", stop)


def _outcome(member: MemberFolder) -> dict[str, Any]:
    ended = state_files.result_of(member)
    if ended is None and not member.exists():
        raise RequestRefusal("ended", "its result is known, and it is forgotten here")
    if ended is None:
        return {"state": "running" if member.has("started.json") else "created"}
    if ended["exit_code"] is not None:
        return {"state": "exited"}
    code = "image_missing" if images.is_missing(ended["error"]) else "start_failed"
    raise RequestRefusal(code, ended["error"])
