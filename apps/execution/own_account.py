"""Plain processes that would run under the account of the control plane itself.

A command that runs there can read its keys, its database and its processes. So no user's command
runs there unless `RPM_ALLOW_OWN_ACCOUNT` allows it: a node with simulated devices runs a built-in
script in its place, any other node nothing.
"""

import os
import shlex
from typing import Final

from django.conf import settings

from apps.core.errors import BadInput
from apps.execution.node.clocks import boot_id
from apps.nodes.models import Node, Runtime, Transport
from apps.tasks.task_spec import TaskSpec

# How long simulated work lasts, where the task has such a variable.
SECONDS: Final = "SIMULATED_SECONDS"
DEFAULT_S: Final = 30
MOST_S: Final = 3600
COMMAND_CHARACTERS: Final = 2000
PROBLEM: Final = (
    "Its node runs plain processes under the account of RPM itself, where a command could read "
    "RPM's keys. Give the node an account of its own, or containers; RPM_ALLOW_OWN_ACCOUNT=1 "
    "allows it where everybody who may enqueue may also administer."
)
# Nothing that a user wrote is more than text to it.
SCRIPT: Final = """echo "[rpm] Simulated. RPM's own account does not run: $2"
echo "I have $RPM_DEVICES"
at=0
while [ "$at" -lt "$1" ]; do
  # Each line starts an exchange with the node: a dozen, however long it lasts.
  step=$(($1/12+1))
  [ "$step" -gt $(($1-at)) ] && step=$(($1-at))
  echo "$at s of $1"
  sleep "$step"
  at=$((at+step))
done
echo "done"
"""


def is_own_account(node: Node, uid: int) -> bool:
    """Whether plain processes of this user on the node are the control plane's equals."""
    is_here = node.transport == Transport.LOCAL or node.boot_id == boot_id()
    return node.runtime == Runtime.PROCESS and is_here and uid == os.geteuid()


def own_account_problem(node: Node, account: int) -> str:
    """Why the node gets no commands of users; empty: it does, or simulates them.

    Args:
        account: the user under which its helper runs; root gives processes to others.
    """
    if settings.ALLOW_OWN_ACCOUNT or node.is_simulated or account == 0:
        return ""
    return PROBLEM if is_own_account(node, account) else ""


def spec_allowed(spec: TaskSpec, node: Node, *, uid: int | None) -> TaskSpec:
    """The same, or simulated work in its place where the command may not run.

    Args:
        uid: under which it runs on the node; None: not known.

    Raises:
        BadInput: nor can it be simulated there.
    """
    if settings.ALLOW_OWN_ACCOUNT or uid is None or not is_own_account(node, uid):
        return spec
    if not node.is_simulated:
        raise BadInput(PROBLEM)
    words = shlex.join(spec.command)[:COMMAND_CHARACTERS]
    seconds = _seconds(spec.environment.get(SECONDS, ""))
    return TaskSpec(
        name=spec.name,
        command=["/bin/sh", "-c", SCRIPT, "rpm", str(seconds), words],
        # Nothing else of it: each part would reach a shell of that account, too.
    )


def _seconds(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return min(int(text), MOST_S) if is_number else DEFAULT_S
