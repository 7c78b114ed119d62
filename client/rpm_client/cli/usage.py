"""`rpmctl status` and `rpmctl usage`: what is held now, and what was held over time."""

from typing import Annotated, Any

import typer

from rpm_client.cli.access import client_of
from rpm_client.cli.output import Json, say, say_json, table

GROUPS = "policy, pool, model, tier, profile, queue or owner."


def show_status(context: typer.Context, *, as_json: Json = False) -> None:
    """GPUs in use by pool and by policy, what runs and waits, and budgets of this month."""
    client = client_of(context)
    pools, policies = list(client.pools()), list(client.policies())
    if as_json:
        say_json({"pools": pools, "policies": policies})
        return
    rows = [
        {
            "name": f"pool {pool['name']}",
            "used": pool["current"]["used"].get("gpu", "0"),
            "of": pool["capacity"].get("gpu", "0"),
        }
        for pool in pools
    ]
    rows += [
        {
            "name": f"policy {policy['name']}",
            "used": policy["current"]["used"].get("gpu", "0"),
            "reserved": policy["reserved"].get("gpu", "-"),
            "of": policy["limit"].get("gpu", "-"),
            "spent": policy["budget_spent"] or "-",
            "budget": policy["budget"] or "-",
            **current(policy),
        }
        for policy in policies
    ]
    heads = ("name", "used", "reserved", "of", "running", "waiting", "oldest", "spent", "budget")
    table(heads, rows)


def show_usage(
    context: typer.Context,
    *,
    by: Annotated[str, typer.Option(help=f"One line per {GROUPS}")] = "policy",
    since: Annotated[str, typer.Option(metavar="DAY", help="Such as 2026-11-01, in UTC.")] = "",
    until: Annotated[str, typer.Option(metavar="DAY", help="Default: today.")] = "",
    pool: Annotated[str, typer.Option(help="Only this pool, by name or id.")] = "",
    as_json: Json = False,
) -> None:
    """GPU hours held in a time, by default the last 28 days."""
    wanted = {"by": by, "since": since, "until": until, "pool": pool}
    found = client_of(context).usage(**{name: value for name, value in wanted.items() if value})
    if as_json:
        say_json(found)
        return
    say(f"GPU hours from {found['since']} to {found['until']}, by {found['by']}")
    lines = [*found["lines"], {"name": "total", "sums": found["total"], "before": found["before"]}]
    rows = [
        {
            "name": one["name"],
            "held": _hours(one["sums"]["gpu_seconds"]),
            "before": _hours(one["before"]["gpu_seconds"]),
            "lost": _hours(one["sums"]["gpu_seconds_lost"]),
            "use": _percent(one["sums"]["gpu_seconds_used"], one["sums"]["gpu_seconds_measured"]),
            "idle": _hours(one["sums"]["gpu_seconds_idle"]),
            "cost": one["sums"]["cost"] if found["currency"] else "-",
            **{name: one["sums"][name] for name in ("admitted", "failed", "preempted")},
        }
        for one in lines
    ]
    heads = ("name", "held", "before", "lost", "use", "idle", "cost", "admitted", "failed")
    table((*heads, "preempted"), rows)


def current(row: dict[str, Any]) -> dict[str, Any]:
    """What runs and waits in a queue or policy, and since when the first task waits."""
    found = row["current"]
    oldest = (found["oldest_wait_at"] or "-")[:16].replace("T", " ")
    return {"running": found["running"], "waiting": found["waiting"], "oldest": oldest}


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _hours(gpu_seconds: float) -> str:
    return f"{gpu_seconds / 3600:.1f}"
