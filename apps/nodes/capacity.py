"""What is configured for a pool beside what its nodes have. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apps.core.units import MILLI, milli_text

GPU = "gpu"


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """One node of a pool.

    Args:
        amounts: what it may give out, in thousandths per key, as it reported last.
        devices: how many of its GPUs are healthy; None where the books list none.
        models: of the GPUs that are there, how many of each.
    """

    is_healthy: bool
    amounts: Mapping[str, int]
    devices: int | None = None
    missing: int = 0
    occupied: int = 0
    models: Mapping[str, int] = field(default_factory=dict)

    @property
    def gpu(self) -> int:
        """GPUs that are there, in thousandths: occupied ones count, missing ones do not."""
        given = self.amounts.get(GPU, 0)
        there = given if self.devices is None else (self.devices + self.occupied) * MILLI
        return min(given, there)

    @property
    def usable_gpu(self) -> int:
        """GPUs that tasks may get, in thousandths."""
        return self.gpu if self.devices is None else min(self.gpu, self.devices * MILLI)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one key, in thousandths: `less` or `more` is there; or `models` that are not one."""

    code: str
    key: str
    configured: int
    found: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Served:
    """What nodes make of a pool.

    Args:
        configured: in thousandths per key.
        found: what healthy nodes have of the keys that nodes report.
        usable_gpu: the smaller of what is configured and what tasks may get, in thousandths.
        missing: GPUs that nodes had and have no more, and `occupied` by others; of healthy nodes.
        models: of the GPUs that are there, the most frequent first.
    """

    nodes: int
    healthy: int
    configured: Mapping[str, int]
    found: Mapping[str, int]
    usable_gpu: int
    missing: int
    occupied: int
    models: tuple[tuple[str, int], ...]
    differences: tuple[Difference, ...]


def served(configured: Mapping[str, int], nodes: Iterable[NodeCapacity]) -> Served:
    """Compare; a pool without nodes differs in nothing, since nobody serves it at all."""
    every = list(nodes)
    healthy = [node for node in every if node.is_healthy]
    keys = {GPU, *(key for node in every for key in node.amounts if key in configured)}
    found = {
        key: sum(node.gpu if key == GPU else node.amounts.get(key, 0) for node in healthy)
        for key in sorted(keys)
    }
    models: dict[str, int] = {}
    for node in healthy:
        for model, count in node.models.items():
            models[model] = models.get(model, 0) + count
    ranked = tuple(sorted(models.items(), key=lambda one: (-one[1], one[0])))
    counts = _Counts(
        silent=len(every) - len(healthy),
        missing=sum(node.missing for node in healthy),
        occupied=sum(node.occupied for node in healthy),
    )
    return Served(
        nodes=len(every),
        healthy=len(healthy),
        configured=configured,
        found=found,
        usable_gpu=min(configured.get(GPU, 0), sum(node.usable_gpu for node in healthy)),
        missing=counts.missing,
        occupied=counts.occupied,
        models=ranked,
        differences=_differences(configured, found, ranked, counts) if every else (),
    )


@dataclass(frozen=True, slots=True)
class _Counts:
    silent: int
    missing: int
    occupied: int


def _differences(
    configured: Mapping[str, int],
    found: Mapping[str, int],
    models: tuple[tuple[str, int], ...],
    counts: _Counts,
) -> tuple[Difference, ...]:
    differences = []
    for key, there in found.items():
        wanted = configured.get(key, 0)
        # Of processors and memory nobody configures all: some is left to the machine itself.
        if there < wanted or (there > wanted and key == GPU):
            code = "less" if there < wanted else "more"
            sentence = _sentence(code, key, wanted, there) + _why(code, key, counts)
            differences.append(Difference(code, key, wanted, there, sentence))
    if len(models) > 1:
        words = ", ".join(f"{count} {model}" for model, count in models)
        sentence = f"Its GPUs are of {len(models)} models: {words}."
        differences.append(Difference("models", GPU, 1, len(models), sentence))
    return tuple(differences)


def _sentence(code: str, key: str, wanted: int, there: int) -> str:
    unit = "GPU" if key == GPU else key
    sentence = f"Configured {milli_text(wanted)} {unit}, healthy nodes have {milli_text(there)}."
    if code == "more":
        sentence += f" {milli_text(there - wanted)} are not given out."
    return sentence


def _why(code: str, key: str, counts: _Counts) -> str:
    if code != "less":
        return ""
    parts = []
    if counts.silent:
        does = "node does" if counts.silent == 1 else "nodes do"
        parts.append(f"{counts.silent} {does} not answer")
    if counts.missing and key == GPU:
        has = "GPU is" if counts.missing == 1 else "GPUs are"
        parts.append(f"{counts.missing} {has} missing")
    return f" {' and '.join(parts)}." if parts else ""
