"""The verbs about one member: launch, stop, forget."""

from __future__ import annotations

import os
import shutil
from typing import Any

from apps.execution.node import checks, clocks, files, homes, supervisor
from apps.execution.node.errors import Refusal
from apps.execution.node.homes import Attempt
from apps.execution.node.specs import Identity, Spec, identity_of, spec_of
from apps.execution.node.stopper import ensure_stopper

START_WAIT_HIGHEST_S = 120


def launch(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Start a member exactly once, however often the same request comes.

    Refuses (code): `other_boot`, `late`, `fenced` (a newer generation is known), `ended` (this
    member is over), `older_alive`, `not_allowed`, `image_missing`, `start_failed`, `invalid`.
    """
    spec = spec_of(request)
    if spec.runtime == "process" and request.get("allow_process") is not True:
        raise Refusal("not_allowed", "this node does not allow tasks without a container")
    wait_s = checks.number(request, "start_wait_s", highest=START_WAIT_HIGHEST_S)
    attempt = Attempt(home, spec.identity)
    with files.locked(homes.task_lock(home, spec.identity.task_id)):
        # Asked under the lock: whoever held it may have taken long.
        _refuse_other_time(request)
        _refuse_behind_fence(home, spec.identity)
        if not _is_known(attempt):
            homes.raise_fence(home, spec.identity, ended=False)
            _write_spec(attempt, spec)
        if not attempt.has("starting") and not attempt.has("exit.json"):
            supervisor.launch(attempt, spec, config, wait_s=wait_s)
    return _outcome(attempt)


def stop(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Ask a member to end: SIGTERM now, SIGKILL after the grace period. Returns at once.

    A member that the node does not know is fenced, so that a launch on its way is refused.
    """
    identity = identity_of(request)
    grace_s = checks.number(request, "grace_s", highest=86_400)
    attempt = Attempt(home, identity)
    with files.locked(homes.task_lock(home, identity.task_id)):
        if not attempt.exists():
            homes.raise_fence(home, identity, ended=True)
            return {"state": "absent"}
        if attempt.has("exit.json"):
            return {"state": "exited"}
        _write_stop(attempt, grace_s)
        if not attempt.is_supervised() and not attempt.has("starting"):
            supervisor.note_exit(attempt, None, "stopped before it started")
            return {"state": "exited"}
        ensure_stopper(attempt, config)
    return {"state": "stopping"}


def forget(home: str, _config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Remove what is kept of tasks that are over for good, their fences included.

    Until then a launch that was delayed somewhere could still arrive; the caller waits until its
    `not_after` is long past. A task with a living member is left alone.
    """
    forgotten = []
    for item in checks.records(request, "tasks", most=1000):
        task_id = checks.text(item, "task_id", checks.IDENTIFIER)
        generation = checks.whole(item, "generation", lowest=1, highest=2**53)
        with files.locked(homes.task_lock(home, task_id)):
            is_newer = homes.read_fence(home, task_id).generation > generation
            if not is_newer and not homes.attempts_of(home, task_id):
                shutil.rmtree(os.path.join(home, "tasks", task_id))
                forgotten.append(task_id)
    return {"forgotten": forgotten}


def acknowledge(home: str, identity: Identity) -> None:
    """The database has the result of this member: remove all but the fence."""
    attempt = Attempt(home, identity)
    if not attempt.exists():
        return
    with files.locked(homes.task_lock(home, identity.task_id)):
        # A supervisor that is still removing the container needs the files a moment longer; the
        # member stays in the report, so the acknowledgement comes again.
        if attempt.has("exit.json") and not attempt.is_supervised():
            homes.remove(attempt)


def _refuse_other_time(request: dict[str, Any]) -> None:
    boot_id = clocks.boot_id()
    if request.get("boot_id") != boot_id:
        raise Refusal("other_boot", "the node has booted since; its boot is %s" % boot_id)
    not_after = checks.number(request, "not_after_s", highest=1e10)
    late_s = clocks.uptime_s() - not_after
    if late_s > 0:
        raise Refusal("late", "the launch came %.3f s after its last moment" % late_s)


def _refuse_behind_fence(home: str, identity: Identity) -> None:
    fence = homes.read_fence(home, identity.task_id)
    if identity.generation < fence.generation:
        raise Refusal("fenced", "generation %d is known here" % fence.generation)
    if identity.generation == fence.generation and identity.rank in fence.ended:
        raise Refusal("ended", "this member has ended or was stopped before it came")
    for attempt in homes.attempts_of(home, identity.task_id):
        is_older = attempt.identity.generation < identity.generation
        if is_older and homes.is_of_this_boot(attempt) and not attempt.has("exit.json"):
            raise Refusal(
                "older_alive", "generation %d has not ended" % attempt.identity.generation
            )


def _is_known(attempt: Attempt) -> bool:
    if not attempt.exists():
        return False
    if not homes.is_of_this_boot(attempt):
        raise Refusal("other_boot", "this member was launched before the node booted")
    return True


def _write_spec(attempt: Attempt, spec: Spec) -> None:
    """Note what is kept of the specification; values of variables are not."""
    homes.add(attempt)
    kept = {
        "boot_id": clocks.boot_id(),
        "runtime": spec.runtime,
        "image": spec.image,
        "devices": [device.uuid for device in spec.devices],
        "secrets": sorted(spec.secrets),
    }
    # Worthless after a power cut: the boot is another one then. Only the fence must survive.
    attempt.write("spec.json", kept)


def _write_stop(attempt: Attempt, grace_s: float) -> None:
    """A second stop can shorten the grace period, never lengthen it."""
    deadline = clocks.uptime_s() + grace_s
    earlier = (attempt.read("stop.json") or {}).get("deadline_uptime_s", deadline)
    attempt.write("stop.json", {"deadline_uptime_s": min(deadline, earlier)})


def _outcome(attempt: Attempt) -> dict[str, Any]:
    ended = attempt.read("exit.json")
    if ended is None:
        return {"state": "running" if attempt.has("started.json") else "created"}
    if ended["exit_code"] is not None:
        return {"state": "exited"}
    raise Refusal(_code_of(ended["error"]), ended["error"])


def _code_of(words: str) -> str:
    lowered = words.lower()
    missing = ("image not known", "no such image", "unable to find image")
    return "image_missing" if any(one in lowered for one in missing) else "start_failed"
