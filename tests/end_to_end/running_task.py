"""A task that runs, and what opens streams into it."""

import base64
import os
import sys
from dataclasses import dataclass

from websockets.sync.client import ClientConnection, connect

from apps.accounts.models import Scope, User
from apps.accounts.services.credentials import credential_create
from apps.execution.protocol.requests import LaunchRequest
from apps.tasks.models import Task
from tests.execution.nodes import TestedNode, member_of
from tests.services.timeouts import scale_timeout

WITHIN_S = 60


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task of alice that runs, its node, and a server for it."""

    task: Task
    node: TestedNode
    url: str
    request: LaunchRequest

    def stop(self) -> None:
        """Kill it on its node."""
        self.node.stop(member_of(self.request), is_kill=True)

    def socket(self, user: User, scope: Scope = Scope.ENQUEUE) -> ClientConnection:
        credential, secret = credential_create(user=user, label="", scope=scope)
        pair = base64.b64encode(f"{credential.key}:{secret}".encode()).decode()
        address = f"{self.url.replace('http', 'ws')}/ws/tasks/{self.task.pk}/stream/"
        return connect(
            address,
            additional_headers={"Authorization": f"Basic {pair}"},
            open_timeout=scale_timeout(WITHIN_S),
        )

    def command(self, user: User, *words: str) -> tuple[list[str], dict[str, str]]:
        credential, secret = credential_create(user=user, label="")
        access = {"RPM_URL": self.url, "RPM_KEY": credential.key, "RPM_SECRET": secret}
        return [sys.executable, "-m", "rpm_client", *words], {**os.environ, **access}
