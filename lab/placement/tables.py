"""What the inflation experiment found, as a table for people and as data for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lab.placement.inflation import InflationOutcome, Timing


@dataclass(frozen=True, slots=True)
class OrderReport:
    """The runs of all seeds with one order of the node list."""

    name: str
    outcomes: tuple[InflationOutcome, ...]

    @property
    def median(self) -> float:
        return median(one.percent for one in self.outcomes)


@dataclass(frozen=True, slots=True)
class ListReport:
    """One pod list."""

    name: str
    orders: tuple[OrderReport, ...]
    timing: Timing

    @property
    def per_second(self) -> float:
        """Arrivals that the engine decides in a second, each placed or dropped."""
        outcomes = [one for order in self.orders for one in order.outcomes]
        seconds = sum(one.seconds for one in outcomes)
        return sum(one.arrivals for one in outcomes) / seconds if seconds else 0.0

    @property
    def exhaustive_per_second(self) -> float:
        return self.timing.count / self.timing.seconds if self.timing.seconds else 0.0

    @property
    def ratio(self) -> float:
        """How many times faster than scoring every node again."""
        return self.per_second / self.exhaustive_per_second if self.exhaustive_per_second else 0.0


def table(reports: Sequence[ListReport], published: Mapping[str, str]) -> str:
    """One line per list: medians over the seeds in % of all GPUs, then speed."""
    orders = [order.name for order in reports[0].orders]
    heading = ["list", *orders, "published", "placements/s", "every node/s", "times", "equal"]
    rows = [heading, *(_row(report, published) for report in reports)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
    first = reports[0].orders[0].outcomes
    lines.append(
        f"GPUs given out in % at 100 % arrived demand, medians over {len(first)} seeds "
        f"({first[0].seed} to {first[-1].seed})."
    )
    return "\n".join(lines)


def _row(report: ListReport, published: Mapping[str, str]) -> list[str]:
    return [
        report.name,
        *(f"{order.median:.2f}" for order in report.orders),
        published.get(report.name, "-"),
        f"{report.per_second:.0f}",
        f"{report.exhaustive_per_second:.2f}",
        f"{report.ratio:.0f}",
        f"{report.timing.equal} of {report.timing.count}",
    ]


def data(report: ListReport) -> dict[str, object]:
    return {
        "list": report.name,
        "orders": [
            {
                "order": order.name,
                "median_percent": round(order.median, 3),
                "runs": [
                    {
                        "seed": one.seed,
                        "percent": round(one.percent, 3),
                        "arrivals": one.arrivals,
                        "placed": one.placed,
                    }
                    for one in order.outcomes
                ],
            }
            for order in report.orders
        ],
        "per_second": round(report.per_second, 1),
        "exhaustive_per_second": round(report.exhaustive_per_second, 3),
        "ratio": round(report.ratio, 1),
        "compared": report.timing.count,
        "equal": report.timing.equal,
    }
