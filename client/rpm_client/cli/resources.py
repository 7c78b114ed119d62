"""The pools and queues that a user may see."""

from typing import Any, Optional

import typer

from rpm_client.cli.access import client_of
from rpm_client.cli.output import Json, complain, say_json, table
from rpm_client.cli.usage import current


def pools(context: typer.Context, *, as_json: Json = False) -> None:
    """The pools that you may see: what is configured, what their nodes have, and who shares."""
    found = list(client_of(context).pools())
    if as_json:
        say_json(found)
        return
    rows = [
        {
            "name": pool["name"],
            "nodes": f"{pool['served']['healthy']}/{pool['served']['nodes']}",
            "configured": _amounts(pool["capacity"]),
            "used": _amounts(pool["current"]["used"]) or "-",
            "found": _amounts(pool["served"]["found"]) if pool["served"]["nodes"] else "-",
            "models": ", ".join(pool["served"]["models"]),
            "shares": _shares(pool["shares"]),
        }
        for pool in found
    ]
    table(("name", "nodes", "configured", "used", "found", "models", "shares"), rows)
    for pool in found:
        for one in pool["served"]["drift"]:
            complain(f"{pool['name']}: {one['sentence']}")


def queues(context: typer.Context, *, as_json: Json = False) -> None:
    """The queues that you may see, how many tasks run and wait there, and since when."""
    found = list(client_of(context).queues())
    if as_json:
        say_json(found)
        return
    rows = [{**queue, **current(queue)} for queue in found]
    table(("id", "name", "policy", "profile", "running", "waiting", "oldest"), rows)


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {key}" for key, amount in amounts.items())


def _shares(shares: Optional[dict[str, Any]]) -> str:
    """Whether nodes enforce the tasks' shares of a GPU."""
    if shares is None:
        return "-"
    if shares["memory"] == shares["compute"]:
        return str(shares["memory"])
    return f"memory {shares['memory']}, compute {shares['compute']}"
