"""What is configured for a pool compared with what its nodes have. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apps.core.units import MILLI, milli_text, unit_of

GPU = "gpu"


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """One node of a pool.

    Args:
        amounts: what it may give out, in thousandths per key, as it reported last.
        devices: how many of its GPUs are healthy; None where none are recorded.
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
        found_amount = given if self.devices is None else (self.devices + self.occupied) * MILLI
        return min(given, found_amount)

    @property
    def usable_gpu(self) -> int:
        """GPUs that tasks may get, in thousandths."""
        return self.gpu if self.devices is None else min(self.gpu, self.devices * MILLI)


@dataclass(frozen=True, slots=True)
class CapacityDifference:
    """Of one key, in thousandths: `less` or `more` is there; or `models` that are not one."""

    code: str
    key: str
    configured: int
    found: int
    sentence: str


@dataclass(frozen=True, slots=True)
class PoolCapacity:
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
    differences: tuple[CapacityDifference, ...]


def pool_capacity(configured: Mapping[str, int], nodes: Iterable[NodeCapacity]) -> PoolCapacity:
    """Compare; a pool without nodes differs in nothing, since no node serves it at all."""
    all_nodes = list(nodes)
    healthy = [node for node in all_nodes if node.is_healthy]
    keys = {GPU, *(key for node in all_nodes for key in node.amounts if key in configured)}
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
        silent=len(all_nodes) - len(healthy),
        missing=sum(node.missing for node in healthy),
        occupied=sum(node.occupied for node in healthy),
    )
    return PoolCapacity(
        nodes=len(all_nodes),
        healthy=len(healthy),
        configured=configured,
        found=found,
        usable_gpu=min(configured.get(GPU, 0), sum(node.usable_gpu for node in healthy)),
        missing=counts.missing,
        occupied=counts.occupied,
        models=ranked,
        differences=_differences(configured, found, ranked, counts) if all_nodes else (),
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
) -> tuple[CapacityDifference, ...]:
    differences = []
    for key, found_amount in found.items():
        configured_amount = configured.get(key, 0)
        # Of processors and memory some is left to the machine itself.
        if found_amount < configured_amount or (found_amount > configured_amount and key == GPU):
            code = "less" if found_amount < configured_amount else "more"
            sentence = _sentence(code, key, configured_amount, found_amount) + _explain(
                code, key, counts
            )
            differences.append(
                CapacityDifference(code, key, configured_amount, found_amount, sentence)
            )
    if len(models) > 1:
        words = ", ".join(f"{count} {model}" for model, count in models)
        sentence = f"Its GPUs are of {len(models)} models: {words}."
        differences.append(CapacityDifference("models", GPU, 1, len(models), sentence))
    return tuple(differences)


def _sentence(code: str, key: str, configured_amount: int, found_amount: int) -> str:
    configured, found = milli_text(configured_amount), milli_text(found_amount)
    sentence = f"Configured {configured} {unit_of(key)}, healthy nodes have {found}."
    if code == "more":
        sentence += f" {milli_text(found_amount - configured_amount)} are not given out."
    return sentence


def _explain(code: str, key: str, counts: _Counts) -> str:
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
