"""What one task is, and why it waits."""

from shlex import quote
from typing import Any

import typer

from rpm_client.cli.access import TaskId, client_of
from rpm_client.cli.output import Json, minute, say, say_json, table

FACTS = ("id", "name", "state", "owner", "queue", "priority", "image", "request", "replicas")
# Shown where they have a value.
MORE = (
    "state_detail",
    "hold",
    "array",
    "array_counts",
    "array_id",
    "array_index",
    "working_dir",
    "environment",
    "volumes",
    "time_limit_s",
    "retries",
)
ATTEMPT = (
    *("generation", "state", "pool", "nodes", "allocated_at", "ended_at", "exit_code", "detail"),
)
TIMES = ("created_at", "submitted_at", "ended_at")


def show(context: typer.Context, task_id: TaskId, *, as_json: Json = False) -> None:
    """What a task is, how it stands, and why it waits."""
    client = client_of(context)
    task = client.task(task_id)
    if task["state"] == "queued":
        task["waits"] = client.explain(task_id)
    task["dependencies"] = client.dependencies(task_id)
    if as_json:
        say_json(task)
        return
    lines = {name: task[name] for name in FACTS}
    lines |= {name: task[name] for name in MORE if task[name] or name == "array_index"}
    if array := task["array"]:
        at_once = f", {array['limit']} at once" if array["limit"] else ""
        lines["array"] = f"{array['size']} elements{at_once}"
    lines["command"] = " ".join(task["command"] or ())
    lines["tags"] = ", ".join(task["tags"])
    lines.update({name: minute(task[name]) for name in TIMES if task[name]})
    lines["exit_code"] = task["exit_code"]
    for name, value in lines.items():
        if value not in (None, "", {}):
            text = _value(value, is_environment=name == "environment")
            say(f"{name.replace('_at', '').replace('_', ' ')}: {text}")
    for one in task["dependencies"]:
        other = one["task"] or "a task that you do not see"
        stands = f"{one['name']}, {one['state']}, " if one["task"] else ""
        say(f"after: {other}:{one['when']} ({stands}{one['outcome']})")
    for reason in task.get("waits", {}).get("reasons", [])[:1]:
        say(f"waits: {reason['sentence']}")


def attempts(context: typer.Context, task_id: TaskId, *, as_json: Json = False) -> None:
    """The admissions of a task, the latest first: where each ran, and how it ended."""
    found = client_of(context).attempts(task_id)
    if as_json:
        say_json(found)
        return
    rows = [{**one, "nodes": _nodes(one["members"])} for one in found]
    table(ATTEMPT, rows)


def _nodes(members: list[dict[str, Any]]) -> list[str]:
    """The names of the nodes that the reader sees."""
    return sorted({str(one["node"]) for one in members if one.get("node")})


def explain(context: typer.Context, task_id: TaskId, *, as_json: Json = False) -> None:
    """Why a task waits, what would help, and what it waited for before."""
    client = client_of(context)
    found = client.explain(task_id)
    if as_json:
        say_json(found)
        return
    if not found["reasons"] and _say_without_reasons(client.task(task_id), found):
        return
    for number, reason in enumerate(found["reasons"]):
        say(reason["sentence"] if number == 0 else f"Also: {reason['sentence']}")
        say(f"  {reason['help']}")
    if found["position"] is not None:
        say(f"Position in its queue: {found['position']}")
        say(f"Expected start: {_expected(found)}")
    if warning := found.get("idle_warning"):
        say(f"All its GPUs have been idle since {minute(warning['since'])}.")
        if warning["stop_at"]:
            say(f"It is stopped at {minute(warning['stop_at'])} if it stays idle.")
    for past in found["history"]:
        say(f"{past['at'][:19].replace('T', ' ')}  {past['code']}: {past['sentence']}")


def _say_without_reasons(task: dict[str, Any], found: dict[str, Any]) -> bool:
    """Say how a task stands that no reason keeps; True where that is all."""
    if task["array_counts"]:
        say(f"An array: {_value(task['array_counts'])}.")
        say(f"Its elements wait each for themselves: rpmctl list --array {task['id']}.")
    elif found["position"] is not None:
        say("No pass has seen it yet.")
    else:
        detail = f": {task['state_detail']}" if task["state_detail"] else "."
        say(f"It does not wait: its state is {found['state']}{detail}")
    return bool(task["array_counts"])


def _value(value: Any, *, is_environment: bool = False) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if is_environment:
        return " ".join(f"{name}={quote(text)}" for name, text in value.items())
    if isinstance(value, dict):
        return ", ".join(f"{amount} {key}" for key, amount in value.items())
    return str(value)


def _expected(found: dict[str, Any]) -> str:
    """The estimated start, and its basis."""
    expected = found["expected_start"]
    if expected is None:
        return str(found["no_estimate"])
    if expected["basis"] == "now":
        return "with the next pass, within seconds (an estimate)."
    when = f"after {minute(expected['earliest'])}, it is unknown how long after"
    if expected["latest"]:
        when = f"between {minute(expected['earliest'])} and {minute(expected['latest'])}"
    return f"probably {when} (an estimate). {expected['sentence']}"
