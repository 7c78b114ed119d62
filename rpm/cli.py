"""`rpmctl`: tasks from the command line."""

import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from apps.core.terminal import plain
from rpm import cli_nodes, cli_usage
from rpm.cli_access import ServerAccess, client_of
from rpm.cli_output import out, say, table
from rpm.client import RefusedError, UnreachableError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Enqueue and manage tasks. Needs RPM_URL, RPM_KEY and RPM_SECRET "
    "(make a credential on the page of your account).",
)
app.add_typer(cli_nodes.app, name="node")
app.command("status")(cli_usage.show_status)
app.command("usage")(cli_usage.show_usage)
err = Console(stderr=True)

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name or id.")]
_PREVIEWED = {
    "starts": "tasks would start",
    "preempted": "would be preempted",
    "moved": "would be moved inside their pool",
    "delayed": "would wait, but start without the change",
    "no_longer_preempted": "would keep running, but are preempted without the change",
    "rejected": "could never run any more",
    "closed": "would become drafts, because they may wait in their queue no longer",
    "waiting": "would still wait",
}
COLUMNS = ("id", "name", "state", "queue", "owner", "priority", "submitted_at")


@app.callback()
def connect(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="RPM_URL", help="Address of the server.")] = "",
    key: Annotated[str, typer.Option(envvar="RPM_KEY", help="Key of a credential.")] = "",
    secret: Annotated[
        str, typer.Option(envvar="RPM_SECRET", help="Its secret; better by RPM_SECRET.")
    ] = "",
    token: Annotated[
        str, typer.Option(envvar="RPM_TOKEN", help="In place of both: what `token` printed.")
    ] = "",
) -> None:
    context.obj = ServerAccess(url, key, secret, token)


@app.command("token")
def make_token(
    context: typer.Context,
    scope: Annotated[str, typer.Option(help="read or enqueue; default: all of it.")] = "",
) -> None:
    """Print a short-lived token for the credential."""
    print(client_of(context).token(scope)["token"])


@app.command()
def enqueue(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="After --: what to run.")] = None,
    *,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Without: a draft.")] = "",
    name: Annotated[str, typer.Option(help="Default: the command.")] = "",
    image: Annotated[str, typer.Option("--image", "-i", help="As the nodes pull it.")] = "",
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="A variable; repeatable."),
    ] = None,
    volume: Annotated[
        list[str] | None, typer.Option("--volume", "-v", help="A volume's name; repeatable.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", "-t", help="Repeatable.")] = None,
    gpus: Annotated[str, typer.Option(help="Dynamic profiles: GPUs per member.")] = "",
    replicas: Annotated[int, typer.Option(help="Members that start together.")] = 0,
    priority: Annotated[
        int, typer.Option(help="From -1000 to what the queue allows; higher starts first.")
    ] = 0,
    time_limit_s: Annotated[int, typer.Option(help="Seconds.")] = 0,
    preemptible: Annotated[bool, typer.Option(help="Whether others may preempt it.")] = True,
    dry_run: Annotated[bool, typer.Option(help="Say whether it would run now.")] = False,
) -> None:
    """Enqueue a new task, or keep it as a draft; prints its id."""
    words = command or []
    description: dict[str, Any] = {
        "name": name or " ".join(words)[:200] or image,
        "command": words,
        "priority": priority,
        "is_preemptible": preemptible,
    }
    optional = {
        "queue": queue,
        "image": image,
        "environment": dict(_pair(one) for one in env or []),
        "volumes": volume,
        "tags": tag,
        "request": gpus,
        "replicas": replicas,
        "time_limit_s": time_limit_s,
    }
    description.update({field: value for field, value in optional.items() if value})
    if dry_run:
        _checked(client_of(context).task_check(description))
    else:
        say(client_of(context).task_submit(description)["id"])


@app.command("list")
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
    table(COLUMNS, [task for task, _ in zip(found, range(most), strict=False)])


@app.command()
def show(context: typer.Context, task_id: TaskId) -> None:
    """Everything about a task, and why it waits."""
    client = client_of(context)
    task = client.task(task_id)
    if task["state"] == "queued":
        task["waits"] = client.explain(task_id)
    out.print_json(data=task)


@app.command()
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
        say(f"All its GPUs have been idle since {_minute(warning['since'])}.")
        if warning["stop_at"]:
            say(f"It is stopped at {_minute(warning['stop_at'])} if it stays idle.")
    for past in found["history"]:
        say(f"{past['at'][:19].replace('T', ' ')}  {past['code']}: {past['sentence']}")


@app.command()
def preview(context: typer.Context) -> None:
    """What provisioning the draft of the configuration would do; for administrators."""
    found = client_of(context).draft_preview()
    for field, words in _PREVIEWED.items():
        say(f"{found[field]['count']:>6}  {words}")
    for row in found["starts"]["rows"]:
        say(f"start    {row['name']} of {row['policy']} in {row['pool']}, {row['tier']}")
    for row in found["preempted"]["rows"]:
        taker = row["beneficiary"]
        say(f"preempt  {row['name']} of {row['policy']} for {taker['name']} of {taker['policy']}")
    for row in (*found["rejected"]["rows"], *found["waiting"]["rows"]):
        say(f"{row['count']:>6} of {row['queue']}: {row['sentence']}")
    for row in found["policies"]:
        if row["before"] != row["after"]:
            say(f"{row['policy']}: {_use(row['before'])} -> {_use(row['after'])}")


@app.command()
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


@app.command()
def abort(context: typer.Context, task_id: TaskId) -> None:
    """End a task: at once if it does not run, else as soon as it has stopped."""
    say(client_of(context).task_do(task_id, "abort")["state"])


@app.command()
def dequeue(context: typer.Context, task_id: TaskId) -> None:
    """Take a waiting task out of its queue; it is a draft again."""
    say(client_of(context).task_do(task_id, "dequeue")["state"])


@app.command("enqueue-draft")
def enqueue_draft(context: typer.Context, task_id: TaskId, queue: QueueName) -> None:
    """Put a draft into a queue, such as a task that was dequeued."""
    say(client_of(context).task_do(task_id, "enqueue", queue=queue)["state"])


@app.command()
def resume(context: typer.Context, task_id: TaskId) -> None:
    """Put a paused or rejected task back into its queue."""
    say(client_of(context).task_do(task_id, "resume")["state"])


@app.command("run-again")
def run_again(
    context: typer.Context,
    task_id: TaskId,
    *,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Default: its last one.")] = "",
) -> None:
    """Enqueue an ended task again."""
    values = {"queue": queue} if queue else {}
    say(client_of(context).task_do(task_id, "run-again", **values)["state"])


# An unknown option may be a negative number.
@app.command(context_settings={"ignore_unknown_options": True})
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


@app.command("change-queue")
def change_queue(context: typer.Context, task_id: TaskId, queue: QueueName) -> None:
    """Move a waiting task to another queue; prints its name."""
    say(client_of(context).task_do(task_id, "change-queue", queue=queue)["queue"])


@app.command()
def maintenance(
    context: typer.Context,
    *,
    hours: Annotated[float, typer.Option(help="How long the control plane will be away.")] = 0,
    end: Annotated[bool, typer.Option("--end", help="It is over.")] = False,
) -> None:
    """Extend leases over planned work, so that no task ends on its node during it."""
    if end == bool(hours):
        raise typer.BadParameter("give --hours or --end", param_hint="--hours")
    until = client_of(context).maintenance(0 if end else hours)["maintenance_until"]
    say(f"Leases are granted until {_minute(until)}." if until else "Leases are as usual.")


@app.command("confirm-restored")
def confirm_restored(context: typer.Context) -> None:
    """After a restore: this database is right, end what nodes run beyond it."""
    found = client_of(context).restore_confirm()
    waits = ", ".join(found["unsettled"])
    say(f"Passes go on once these nodes have answered: {waits}" if waits else "Passes go on.")


@app.command()
def pools(context: typer.Context) -> None:
    """The pools that you may see: what is configured, what their nodes have, and who shares."""
    found = list(client_of(context).pools())
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
            err.print(plain(f"{pool['name']}: {one['sentence']}"), markup=False)


@app.command()
def queues(context: typer.Context) -> None:
    """The queues that you may see, how many tasks run and wait there, and since when."""
    rows = [queue | cli_usage.current(queue) for queue in client_of(context).queues()]
    table(("id", "name", "policy", "profile", "running", "waiting", "oldest"), rows)


def main() -> None:
    """Run the command; a refusal of the server ends it with its message and status 1."""
    try:
        app()
    except RefusedError as error:
        err.print(plain(error.code), style="red", end=": ", markup=False)
        err.print(plain(error.detail), markup=False)
        sys.exit(1)
    except UnreachableError as error:
        err.print(plain(str(error)), markup=False)
        sys.exit(2)


def _expected(found: dict[str, Any]) -> str:
    """The estimated start, and its basis."""
    expected = found["expected_start"]
    if expected is None:
        return str(found["no_estimate"])
    if expected["basis"] == "now":
        return "with the next pass, within seconds (an estimate)."
    when = f"after {_minute(expected['earliest'])}, it is unknown how long after"
    if expected["latest"]:
        when = f"between {_minute(expected['earliest'])} and {_minute(expected['latest'])}"
    return f"probably {when} (an estimate). {expected['sentence']}"


def _use(use: dict[str, Any] | None) -> str:
    """What a policy holds on one side of a change."""
    if use is None:
        return "not there"
    reserved = ", ".join(f"{amount} {key}" for key, amount in use["reserved"].items())
    over = ", ".join(f"{amount} {key}" for key, amount in use["over_quota"].items())
    counts = f"{use['running']} running, {use['waiting']} waiting"
    return f"{counts}, {reserved or 'nothing'} reserved, {over or 'nothing'} over quota"


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {key}" for key, amount in amounts.items())


def _shares(shares: dict[str, Any] | None) -> str:
    """Whether nodes enforce the tasks' shares of a GPU."""
    if shares is None:
        return "-"
    if shares["memory"] == shares["compute"]:
        return str(shares["memory"])
    return f"memory {shares['memory']}, compute {shares['compute']}"


def _minute(at: str) -> str:
    return f"{at[:16].replace('T', ' ')} UTC"


def _checked(found: dict[str, Any]) -> None:
    """Whether it would run; if not, why, what would help, and who comes first."""
    say(found["sentence"])
    if not found["would_run"]:
        say(f"  {found['help']}")
        for reason in found["reasons"][1:]:
            say(f"Also: {reason['sentence']}")
        say(f"Waiting tasks of its queue before it: {found['ahead']}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    return name, value


if __name__ == "__main__":
    main()
