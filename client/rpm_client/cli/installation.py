"""Commands of administrators: preview, planned work, and confirming a restored database."""

from typing import Annotated, Any, Optional

import typer

from rpm_client.cli.access import client_of
from rpm_client.cli.output import Json, minute, say, say_json

PREVIEWED = {
    "starts": "tasks would start",
    "preempted": "would be preempted",
    "moved": "would be moved inside their pool",
    "delayed": "would wait, but start without the change",
    "no_longer_preempted": "would keep running, but are preempted without the change",
    "rejected": "could never run any more",
    "closed": "would become drafts, because they may wait in their queue no longer",
    "waiting": "would still wait",
}


def preview(context: typer.Context, *, as_json: Json = False) -> None:
    """What provisioning the draft of the configuration would do; for administrators."""
    found = client_of(context).draft_preview()
    if as_json:
        say_json(found)
        return
    for field, words in PREVIEWED.items():
        say(f"{found[field]['count']:>6}  {words}")
    say_rows(found, [*found["rejected"]["rows"], *found["waiting"]["rows"]])


def say_rows(found: dict[str, Any], task_groups: list[dict[str, Any]]) -> None:
    """What a preview names: tasks that start or are preempted, these groups, and policies."""
    for row in found["starts"]["rows"]:
        say(f"start    {row['name']} of {row['policy']} in {row['pool']}, {row['tier']}")
    for row in found["preempted"]["rows"]:
        taker = row["beneficiary"]
        say(f"preempt  {row['name']} of {row['policy']} for {taker['name']} of {taker['policy']}")
    for row in task_groups:
        say(f"{row['count']:>6} of {row['queue']}: {row['sentence']}")
    for row in found["policies"]:
        if row["before"] != row["after"]:
            say(f"{row['policy']}: {_use(row['before'])} -> {_use(row['after'])}")


def maintenance(
    context: typer.Context,
    *,
    hours: Annotated[float, typer.Option(help="How long the control plane will be away.")] = 0,
    end: Annotated[bool, typer.Option("--end", help="It is over.")] = False,
    as_json: Json = False,
) -> None:
    """Extend leases over planned work, so that no task ends on its node during it."""
    if end == bool(hours):
        raise typer.BadParameter("give --hours or --end", param_hint="--hours")
    found = client_of(context).maintenance(0 if end else hours)
    if as_json:
        say_json(found)
        return
    until = found["maintenance_until"]
    say(f"Leases are granted until {minute(until)}." if until else "Leases are as usual.")


def confirm_restored(context: typer.Context) -> None:
    """After a restore: this database is right, end what nodes run beyond it."""
    found = client_of(context).restore_confirm()
    waits = ", ".join(found["unsettled"])
    say(f"Passes go on once these nodes have answered: {waits}" if waits else "Passes go on.")


def _use(use: Optional[dict[str, Any]]) -> str:
    """What a policy holds on one side of a change."""
    if use is None:
        return "not there"
    reserved = ", ".join(f"{amount} {key}" for key, amount in use["reserved"].items())
    over = ", ".join(f"{amount} {key}" for key, amount in use["over_quota"].items())
    counts = f"{use['running']} running, {use['waiting']} waiting"
    return f"{counts}, {reserved or 'nothing'} reserved, {over or 'nothing'} over quota"
