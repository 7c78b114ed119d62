"""`python -m lab.placement TRACES_DIR`: how well nodes and GPUs are chosen, on real workloads."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from apps.allocation.engine.model.snapshot import NodeSnapshot
from apps.core.errors import BadInput
from lab.placement.inflation import Cluster, compare, inflate
from lab.placement.tables import ListReport, OrderReport, data, table
from lab.placement.traces import (
    Pod,
    pod_lists,
    read_nodes,
    read_pods,
    read_published,
)

# The list of nodes as it came, and shuffled by this seed.
ORDERS = {"as listed": None, "shuffled": 7}


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack the pods of each list on the nodes of a folder, and print what was given out.

    Raises:
        SystemExit: for wrong options, files and folders, with a sentence about each.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    folder: Path = options.traces
    try:
        lists = _chosen(pod_lists(folder), options.lists)
        nodes = read_nodes(folder)
        pods = {name: read_pods(folder, name) for name in lists}
        published = read_published(folder)
    except BadInput as error:
        parser.error(str(error))
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        reports = [_measured(bar, name, nodes, pods[name], seeds=options.seeds) for name in lists]
    print(table(reports, published))
    if options.json:
        text = json.dumps([data(one) for one in reports], indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m lab.placement",
        description="Measure on recorded workloads how well the engine packs pods on nodes.",
    )
    parser.add_argument("traces", type=Path, metavar="TRACES_DIR")
    parser.add_argument(
        "--lists",
        metavar="NAME,...",
        help="pod lists by name (default: all of the folder)",
    )
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=range(42, 52),
        metavar="42-51",
        help="first and last seed of the order of arrivals (default 42-51)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser


def _measured(
    bar: Progress,
    name: str,
    nodes: tuple[NodeSnapshot, ...],
    pods: tuple[Pod, ...],
    *,
    seeds: range,
) -> ListReport:
    task = bar.add_task(name, total=len(ORDERS) * len(seeds) + 1)
    orders = []
    for order, shuffle in ORDERS.items():
        cluster = Cluster(nodes, pods, shuffle)
        outcomes = []
        for seed in seeds:
            outcomes.append(inflate(cluster, seed))
            bar.advance(task)
        orders.append(OrderReport(order, tuple(outcomes)))
    timing = compare(Cluster(nodes, pods, None), seeds[0])
    bar.advance(task)
    return ListReport(name, tuple(orders), timing)


def _chosen(names: list[str], wanted: str | None) -> list[str]:
    if wanted is None:
        return names
    chosen = list(dict.fromkeys(wanted.split(",")))
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise BadInput(f"No pod list {', '.join(unknown)}; there are {', '.join(names)}.")
    return chosen


def _seeds(text: str) -> range:
    found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not one seed, or a first and a last such as 42-51")
    seeds = range(int(found[1]), int(found[2] or found[1]) + 1)
    if not 0 < len(seeds) <= 1000:
        raise ArgumentTypeError("must be from 1 to 1000 seeds, the first not after the last")
    return seeds


if __name__ == "__main__":
    sys.exit(main())
