"""Every kind of fault: what it hits, how long it lasts, how often it is drawn.

`CLASSES` follows the page docs/chaos.md.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class FaultClass:
    """One kind of fault.

    Args:
        targets: what it can be done to; keys of `Shape.targets`.
        shortest_s, longest_s: how long it lasts.
        weight: how often it is drawn compared with the others; each is drawn at least once.
        channel: two faults of one channel on one target never overlap, others may.
    """

    name: str
    targets: str
    shortest_s: float
    longest_s: float
    channel: str
    weight: int = 10


CLASSES: Final[tuple[FaultClass, ...]] = (
    FaultClass("web-kill", "web", 0.2, 4, "process"),
    FaultClass("web-stop", "web", 0.5, 6, "process"),
    FaultClass("worker-kill", "worker", 0.2, 5, "process", 14),
    FaultClass("worker-stop", "worker", 0.5, 8, "process", 12),
    FaultClass("server-kill", "server", 0.2, 5, "process", 12),
    FaultClass("server-stop", "server", 0.5, 8, "process", 10),
    FaultClass("beat-kill", "beat", 0.2, 4, "process", 6),
    FaultClass("beat-stop", "beat", 0.5, 6, "process", 6),
    FaultClass("two-beats", "control", 3, 8, "beats", 6),
    FaultClass("no-beat", "beat", 4, 10, "process", 4),
    FaultClass("control-away", "control", 3, 20, "process", 3),
    FaultClass("everything-kill", "control", 0, 2, "process", 2),
    FaultClass("crash-point", "control", 12, 20, "process", 3),
    FaultClass("node-crash-point", "node", 6, 15, "crash", 10),
    FaultClass("partition", "node", 0.5, 8, "net", 14),
    FaultClass("partition-in", "node", 0.5, 8, "net", 10),
    FaultClass("partition-out", "node", 0.5, 8, "net", 10),
    FaultClass("flap", "node", 2, 10, "net", 14),
    FaultClass("node-lost-requeue", "node", 26, 32, "net", 3),
    FaultClass("node-lost-fail", "node", 26, 32, "net", 3),
    FaultClass("sshd-kill", "node", 0.2, 5, "sshd", 12),
    FaultClass("host-key", "node", 1, 6, "sshd", 5),
    FaultClass("banner-hang", "node", 1, 8, "sshd", 8),
    FaultClass("reboot", "node", 0.5, 4, "sshd", 8),
    FaultClass("work-kill", "node", 0, 0, "work", 12),
    FaultClass("monitor-kill", "node", 0, 0, "work", 14),
    FaultClass("work-stop", "node", 1, 8, "work", 8),
    FaultClass("helper-stop", "node", 0.5, 6, "helper", 10),
    FaultClass("launch-repeated", "node", 0, 0, "launches", 12),
    FaultClass("runtime-missing", "podman-node", 1, 6, "runtime", 6),
    FaultClass("node-disk-full", "node", 1, 6, "disk", 8),
    FaultClass("node-clock", "node", 1, 8, "clock", 6),
    FaultClass("control-clock", "control", 1, 8, "clock", 5),
    FaultClass("node-removed", "node", 12, 20, "sshd", 3),
    FaultClass("redis-kill", "redis", 0.3, 6, "redis", 6),
    FaultClass("redis-flush", "redis", 0, 0, "redis", 6),
    FaultClass("redis-pause", "redis", 0.5, 6, "redis", 6),
    FaultClass("postgres-restart", "postgres", 0, 3, "postgres", 5),
    FaultClass("postgres-crash", "postgres", 0, 0, "postgres", 5),
    FaultClass("postgres-disk-full", "postgres", 1, 5, "postgres", 4),
    FaultClass("commit-answer-lost", "postgres", 0.5, 3, "answers", 14),
    FaultClass("messages-late", "redis", 1, 6, "messages", 8),
    FaultClass("messages-doubled", "redis", 0, 0, "messages", 8),
    FaultClass("messages-shuffled", "redis", 1, 4, "messages", 6),
)

BY_NAME: Final = {one.name: one for one in CLASSES}
