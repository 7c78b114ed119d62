"""`rpmctl`: tasks from the command line."""

import sys
from itertools import islice
from typing import Annotated, Any, Optional

import typer

from rpm_client.cli.access import client_of
from rpm_client.cli.output import complain, minute, say, say_json, table
from rpm_client.terminal import plain

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name or id.")]
# What `cancel` aborts where a filter names no state.
ALIVE = "draft,queued,allocated,running,stopping,paused,rejected"
COLUMNS = ("id", "name", "state", "queue", "owner", "priority", "submitted_at")


def list_tasks(
    context: typer.Context,
    *,
    state: Annotated[str, typer.Option(help="Several by commas.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Name or id.")] = "",
    owner: Annotated[str, typer.Option(help="User name.")] = "",
    tag: Annotated[str, typer.Option("--tag", "-t", help="One tag.")] = "",
    most: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many.")] = 50,
) -> None:
    """The tasks that you may see, the latest first."""
    found = client_of(context).tasks(
        state=state, queue=queue, owner=owner, tag=tag, limit=min(most, 500)
    )
    table(COLUMNS, list(islice(found, most)))


def show(context: typer.Context, task_id: TaskId) -> None:
    """Everything about a task, and why it waits."""
    client = client_of(context)
    task = client.task(task_id)
    if task["state"] == "queued":
        task["waits"] = client.explain(task_id)
    say_json(task)


def explain(context: typer.Context, task_id: TaskId) -> None:
    """Why a task waits, what would help, and what it waited for before."""
    found = client_of(context).explain(task_id)
    if not found["reasons"]:
        state = f"It does not wait: its state is {found['state']}."
        say(state if found["position"] is None else "No pass has seen it yet.")
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


def logs(
    context: typer.Context,
    task_id: TaskId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the task ends.")] = False,
    rank: Annotated[int, typer.Option(min=0, help="Member of a gang.")] = 0,
) -> None:
    """What a task wrote."""
    client = client_of(context)
    if not follow:
        sys.stdout.write(plain(client.log(task_id, rank=rank)["text"]))
        return
    for text in client.log_follow(task_id, rank=rank):
        sys.stdout.write(plain(text))
        sys.stdout.flush()


def abort(context: typer.Context, task_id: TaskId) -> None:
    """End a task: at once if it does not run, else as soon as it has stopped."""
    say(client_of(context).task_do(task_id, "abort")["state"])


def cancel(
    context: typer.Context,
    task_ids: Annotated[
        Optional[list[str]], typer.Argument(metavar="[TASK]...", help="Ids; or give a filter.")
    ] = None,
    *,
    state: Annotated[str, typer.Option(help="Several by commas.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Name or id.")] = "",
    owner: Annotated[str, typer.Option(help="User name.")] = "",
    tag: Annotated[str, typer.Option("--tag", "-t", help="One tag.")] = "",
    name: Annotated[str, typer.Option(help="Part of the name.")] = "",
) -> None:
    """Abort several tasks, or all that match a filter; ended ones stay as they are."""
    wanted = {"state": state, "queue": queue, "owner": owner, "tag": tag, "q": name}
    filters = {field: value for field, value in wanted.items() if value}
    if bool(task_ids) == bool(filters):
        raise typer.BadParameter("give ids of tasks, or a filter", param_hint="TASK")
    selection = {"tasks": task_ids} if task_ids else {"filter": {"state": ALIVE, **filters}}
    found = client_of(context).tasks_do("abort", **selection)
    for one in found["results"]:
        error = one["error"]
        said = f"{error['code']}: {error['detail']}" if error else one["state"]
        say(f"{one['task']}  {said}")
    if found["is_more"]:
        complain("More tasks match: run the command again.")
    if found["failed"]:
        raise typer.Exit(1)


def dequeue(context: typer.Context, task_id: TaskId) -> None:
    """Take a waiting task out of its queue; it is a draft again."""
    say(client_of(context).task_do(task_id, "dequeue")["state"])


def hold(context: typer.Context, task_id: TaskId) -> None:
    """Put a waiting task on hold: it keeps its place, and does not start."""
    say(client_of(context).task_do(task_id, "hold")["state"])


def release(context: typer.Context, task_id: TaskId) -> None:
    """End the hold of a waiting task."""
    say(client_of(context).task_do(task_id, "release")["state"])


def enqueue_draft(context: typer.Context, task_id: TaskId, queue: QueueName) -> None:
    """Put a draft into a queue, such as a task that was dequeued."""
    say(client_of(context).task_do(task_id, "enqueue", queue=queue)["state"])


def resume(context: typer.Context, task_id: TaskId) -> None:
    """Put a paused or rejected task back into its queue."""
    say(client_of(context).task_do(task_id, "resume")["state"])


def run_again(
    context: typer.Context,
    task_id: TaskId,
    *,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Default: its last one.")] = "",
) -> None:
    """Enqueue an ended task again."""
    values = {"queue": queue} if queue else {}
    say(client_of(context).task_do(task_id, "run-again", **values)["state"])


def priority(
    context: typer.Context,
    task_id: TaskId,
    value: Annotated[
        int,
        typer.Argument(
            metavar="PRIORITY", help="From -1000 to what the queue allows; higher starts first."
        ),
    ],
) -> None:
    """Change the priority of a draft or a waiting task; prints the new one."""
    say(str(client_of(context).task_do(task_id, "priority", priority=value)["priority"]))


def change_queue(context: typer.Context, task_id: TaskId, queue: QueueName) -> None:
    """Move a waiting task to another queue; prints its name."""
    say(client_of(context).task_do(task_id, "change-queue", queue=queue)["queue"])


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
