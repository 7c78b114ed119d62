"""Everything that a fault can hit."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.broker_messages import MessageInterceptor
from tests.chaos.control import ALONE, ControlPlane
from tests.chaos.history import KilledAttempt, Silence
from tests.chaos.nodes import ChaosNode
from tests.chaos.proxy import CommitProxy
from tests.chaos.servers import PostgresServer, RedisControl
from tests.end_to_end.installation import Installation

# How long a fault that needs work waits for some to come.
PATIENCE, PATIENCE_STEP_S = 60, 0.5
STANDBY: Final = frozenset({"beat-2", ALONE})
# The pool of each runtime.
POOLS: Final = {"podman": "Containers", "process": "Processes"}


@dataclass(slots=True)
class Stage:
    """What there is in a run.

    Args:
        seed: of the run; what an injector draws depends on it and on the fault alone.
    """

    seed: int
    nodes: dict[str, ChaosNode]
    control: ControlPlane
    postgres: PostgresServer
    redis: RedisControl
    proxy: CommitProxy
    interceptor: MessageInterceptor
    control_clock: Path
    installation: Installation
    # GPUs of each node.
    slots: int
    killed: list[KilledAttempt] = field(default_factory=list)
    unwatched: list[KilledAttempt] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)

    def adding(self, node: ChaosNode) -> list[str]:
        """The words of `manage.py` that add the node, in every way as at the beginning."""
        return [
            *("node", "add", node.name, "--pool", POOLS[node.runtime]),
            *("--address", node.address, "--user", "root", "--key", str(node.key_path)),
            *("--fingerprint", node.host_key.fingerprint, "--runtime", node.runtime),
            *("--state-dir", str(node.home), "--simulated-gpus", str(self.slots)),
            *(f"--env={name}={value}" for name, value in node.environment.items()),
            *(["--allow-process"] if node.runtime == "process" else []),
        ]


class NothingToHit(Exception):
    """The fault found nothing that it could do something to; it does not count."""
