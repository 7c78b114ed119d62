"""Nodes and pods of a cluster as CSV files, in the form published with the FGD simulator."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeVar

from apps.allocation.engine.model.quantities import GPU, WHOLE, Quantities, is_valid_gpu_request
from apps.allocation.engine.model.snapshot import NodeSnapshot
from apps.core.errors import BadInput

NODE_LIST = "openb_node_list_gpu_node"
POD_LIST = "openb_pod_list_"
PUBLISHED = "published_fgd_alloc_median.csv"
PUBLISHED_POLICY = "06-FGD"
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
# Lists without `gpu_spec` demand no models.
POD_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")

Row = Mapping[str, str]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Pod:
    """What one arrival asks for; `models` empty: any."""

    request: Quantities
    models: tuple[str, ...]


def pod_lists(folder: Path) -> list[str]:
    """Names of the pod lists of a folder, in order."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: is no folder.")
    names = {path.name.split(".")[0] for path in folder.glob(f"{POD_LIST}*.csv*")}
    if not names:
        raise BadInput(f"{folder}: holds no {POD_LIST}*.csv.")
    return sorted(name.removeprefix(POD_LIST) for name in names)


def read_nodes(folder: Path) -> tuple[NodeSnapshot, ...]:
    return tuple(_read(_file(folder, NODE_LIST), NODE_COLUMNS, _node))


def read_pods(folder: Path, name: str) -> tuple[Pod, ...]:
    return tuple(_read(_file(folder, POD_LIST + name), POD_COLUMNS, _pod))


def read_published(folder: Path) -> dict[str, str]:
    """The published medians at 100 % arrived demand, by list; empty where there are none."""
    path = folder / PUBLISHED
    if not path.exists():
        return {}
    rows = _read(path, ("trace", "policy", "100"), lambda row: row)
    return {row["trace"]: row["100"] for row in rows if row["policy"] == PUBLISHED_POLICY}


def _file(folder: Path, name: str) -> Path:
    for ending in (".csv.gz", ".csv"):
        path = folder / (name + ending)
        if path.is_file():
            return path
    raise BadInput(f"{folder}: has no {name}.csv or {name}.csv.gz.")


def _read(path: Path, columns: tuple[str, ...], item: Callable[[Row], Item]) -> list[Item]:
    """All rows of a file.

    Raises:
        BadInput: naming the file, and the line or column that is wrong.
    """
    try:
        with _opened(path) as file:
            found = list(_items(file, path, columns, item))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: {error}") from error
    if not found:
        raise BadInput(f"{path}: holds no row.")
    return found


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _items(
    file: TextIO, path: Path, columns: tuple[str, ...], item: Callable[[Row], Item]
) -> Iterator[Item]:
    rows = csv.DictReader(file)
    absent = [name for name in columns if name not in (rows.fieldnames or ())]
    if absent:
        raise BadInput(f"{path}: has no column {', '.join(absent)}.")
    for row in rows:
        try:
            yield item(row)
        except (ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{path}, line {rows.line_num}: {error}") from error


def _node(row: Row) -> NodeSnapshot:
    return NodeSnapshot(
        id=row["sn"],
        name=row["sn"],
        capacity=_amounts(row, _amount(row, "gpu") * WHOLE),
        model=row["model"],
    )


def _pod(row: Row) -> Pod:
    count = _amount(row, "num_gpu")
    milli = _amount(row, "gpu_milli") if count == 1 else count * WHOLE
    if not is_valid_gpu_request(milli):
        raise ValueError(f"asks for {milli} thousandths of a GPU")
    models = {model for model in (row.get("gpu_spec") or "").split("|") if model}
    return Pod(_amounts(row, milli).positive(), tuple(sorted(models)))


def _amounts(row: Row, gpu_milli: int) -> Quantities:
    memory = _amount(row, "memory_mib") * WHOLE
    return Quantities.of({"cpu": _amount(row, "cpu_milli"), "memory_mb": memory, GPU: gpu_milli})


def _amount(row: Row, column: str) -> int:
    found = int(row[column])
    if found < 0:
        raise ValueError(f"{column} is negative")
    return found
