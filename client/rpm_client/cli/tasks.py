"""What users do with tasks that are there: list, show, explain, read, change and end them."""

import sys
from collections.abc import Iterator
from itertools import islice
from shutil import get_terminal_size
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rpm_client.bounds import MANY
from rpm_client.cli.access import TaskId, client_of, whole_ids
from rpm_client.cli.outcomes import wait
from rpm_client.cli.output import Json, Yes, answer, complain, confirm, say, say_json, table
from rpm_client.cli.submit import Waiting, of_file
from rpm_client.cli.task_options import described, merged, task_options
from rpm_client.logs import ENDED
from rpm_client.terminal import plain

if TYPE_CHECKING:
    from rpm_client.client import Client

TaskIds = Annotated[
    list[str],
    typer.Argument(metavar="TASK...", help="Ids, or their beginnings.", callback=whole_ids),
]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name or id.")]
State = Annotated[str, typer.Option(help="Several by commas.")]
Queue = Annotated[str, typer.Option("--queue", "-q", help="Name or id.")]
Policy = Annotated[str, typer.Option(help="Name or id.")]
Owner = Annotated[str, typer.Option(help="User name; default: you.")]
Everybody = Annotated[bool, typer.Option("--all", "-a", help="Of all owners.")]
Tag = Annotated[str, typer.Option("--tag", "-t", help="One tag.")]
Name = Annotated[str, typer.Option(help="A part of the name.")]
COLUMNS = ("id", "name", "state", "queue", "owner", "priority", "submitted_at")
LIVE = "draft,queued,allocated,running,stopping,paused,rejected"
WATCH_S = 2.0
WIDE = 120
CLEAR = "\x1b[H\x1b[2J"
PAGE = 500
# On a terminal of 80 columns.
FEW_COLUMNS = ("id", "name", "state", "queue", "submitted_at")


def list_tasks(
    context: typer.Context,
    *,
    state: State = "",
    queue: Queue = "",
    policy: Policy = "",
    owner: Owner = "",
    is_all: Everybody = False,
    tag: Tag = "",
    name: Name = "",
    array: Annotated[
        str, typer.Option(metavar="TASK", help="Elements of this array.", callback=whole_ids)
    ] = "",
    most: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many.")] = 50,
    columns: Annotated[
        str, typer.Option("--output", "-o", help="Fields of REST, by commas: id,name,exit_code.")
    ] = "",
    is_watched: Annotated[
        bool, typer.Option("--watch", "-w", help="Again every two seconds, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Your tasks, the latest first; with --all those of others that you may see."""
    client = client_of(context)
    filters = _filters(
        client,
        owner,
        # An array and its elements have one owner.
        is_all=is_all or bool(array),
        array=array,
        state=state,
        queue=queue,
        policy=policy,
        tag=tag,
        q=name,
    )
    is_narrow = sys.stdout.isatty() and get_terminal_size().columns < WIDE
    heads = tuple(columns.split(",")) if columns else FEW_COLUMNS if is_narrow else COLUMNS
    while True:
        found = list(islice(client.tasks(**filters, limit=min(most, PAGE)), most))
        unknown = [head for head in heads if found and head not in found[0]]
        if unknown:
            known = ", ".join(found[0])
            raise typer.BadParameter(f"There is no field {unknown[0]!r}: {known}.", param_hint="-o")
        if is_watched and sys.stdout.isatty():
            sys.stdout.write(CLEAR)
        if as_json:
            say_json(found)
        elif found:
            table(heads, found)
        else:
            complain("No task matches.")
        if not is_watched:
            return
        sys.stdout.flush()
        sleep(WATCH_S)


def logs(
    context: typer.Context,
    task_ids: TaskIds,
    *,
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="Until the tasks end.")
    ] = False,
    rank: Annotated[
        Optional[list[int]], typer.Option(help="Member of a gang, from 0; repeatable.")
    ] = None,
) -> None:
    """What tasks wrote; lines of several have the task, and the rank, before them."""
    client = client_of(context)
    sources = [(task_id, one) for task_id in task_ids for one in rank or [0]]
    if len(sources) == 1:
        task_id, one = sources[0]
        parts = client.log_follow(task_id, rank=one)
        for text in parts if is_followed else [client.log(task_id, rank=one)["text"]]:
            sys.stdout.write(plain(text))
            sys.stdout.flush()
        return
    if is_followed:
        for (task_id, one), text in client.logs_follow(sources):
            _write_lines(f"{task_id}/{one}", text)
        return
    for task_id, one in sources:
        _write_lines(f"{task_id}/{one}", client.log(task_id, rank=one)["text"])


def abort(context: typer.Context, task_ids: TaskIds, *, as_json: Json = False) -> None:
    """End tasks: at once if they do not run, else as soon as they have stopped."""
    client = client_of(context)
    for task_id in task_ids:
        answer(client.task_do(task_id, "abort"), "state", as_json=as_json)


def cancel(
    context: typer.Context,
    task_ids: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[TASK]...", help="Ids; or give a filter.", callback=whole_ids),
    ] = None,
    *,
    state: State = "",
    queue: Queue = "",
    policy: Policy = "",
    owner: Owner = "",
    is_all: Everybody = False,
    tag: Tag = "",
    name: Name = "",
    is_sure: Yes = False,
    as_json: Json = False,
) -> None:
    """Abort several tasks, or after a question all that match; your own without --owner or --all.

    Ended tasks stay as they are.
    """
    client = client_of(context)
    wanted = {"queue": queue, "policy": policy, "tag": tag, "q": name}
    if bool(task_ids) == any((state, owner, is_all, *wanted.values())):
        raise typer.BadParameter("Give ids of tasks, or --queue, --name, --state, --tag or --all.")
    ids = list(task_ids or ())
    if not ids:
        filters = _filters(client, owner, is_all=is_all, state=state or LIVE, **wanted)
        live = list(_in_states(client, filters))
        ids = [task["id"] for task in live]
        _ask_before_abort(live, is_sure=is_sure)
    results = []
    for start in range(0, len(ids), MANY):
        results += client.tasks_do("abort", tasks=ids[start : start + MANY])["results"]
    if as_json:
        say_json(results)
    for one in [] if as_json else results:
        error = one["error"]
        said = f"{error['code']}: {error['detail']}" if error else one["state"]
        say(f"{one['task']}  {said}")
    if any(one["error"] for one in results):
        raise typer.Exit(1)


def _in_states(client: "Client", filters: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The live tasks that match; of an array that is in another state itself, its elements."""
    states = filters["state"].split(",")
    for task in list(client.tasks(**filters, limit=PAGE)):
        if task["state"] not in states:
            yield from client.tasks(array=task["id"], state=filters["state"], limit=PAGE)
        elif task["state"] not in ENDED:
            yield task


def _ask_before_abort(found: list[dict[str, Any]], *, is_sure: bool) -> None:
    if not found:
        complain("No task matches.")
    if not found or is_sure:
        return
    states = sorted({task["state"] for task in found})
    counts = [f"{sum(task['state'] == one for task in found)} {one}" for one in states]
    elements = sum(
        count
        for task in found
        for state, count in (task["array_counts"] or {}).items()
        if state not in ENDED
    )
    more = f", with {elements} elements of arrays" if elements else ""
    confirm(f"Abort {len(found)} tasks ({', '.join(counts)}){more}?")


def hold(context: typer.Context, task_id: TaskId, *, as_json: Json = False) -> None:
    """Put a waiting task on hold: it keeps its place, and does not start."""
    answer(client_of(context).task_do(task_id, "hold"), "state", as_json=as_json)


def release(context: typer.Context, task_id: TaskId, *, as_json: Json = False) -> None:
    """End the hold of a waiting task."""
    answer(client_of(context).task_do(task_id, "release"), "state", as_json=as_json)


def dequeue(context: typer.Context, task_id: TaskId, *, as_json: Json = False) -> None:
    """Take a waiting task out of its queue; it is a draft again."""
    answer(client_of(context).task_do(task_id, "dequeue"), "state", as_json=as_json)


def delete(context: typer.Context, task_ids: TaskIds, *, is_sure: Yes = False) -> None:
    """Delete drafts that never ran, for good. Abort other tasks instead."""
    if not is_sure:
        confirm(f"Delete {len(task_ids)} drafts?" if len(task_ids) > 1 else "Delete this draft?")
    client = client_of(context)
    for task_id in task_ids:
        client.task_delete(task_id)
        say(f"{task_id}  deleted")


def enqueue_draft(
    context: typer.Context, task_id: TaskId, queue: QueueName, *, as_json: Json = False
) -> None:
    """Put a draft into a queue, such as a task that was dequeued."""
    answer(client_of(context).task_do(task_id, "enqueue", queue=queue), "state", as_json=as_json)


def resume(context: typer.Context, task_id: TaskId, *, as_json: Json = False) -> None:
    """Put a paused or rejected task back into its queue."""
    answer(client_of(context).task_do(task_id, "resume"), "state", as_json=as_json)


def again(
    context: typer.Context,
    task_id: TaskId,
    *,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Default: its last one.")] = "",
    is_all: Annotated[
        bool, typer.Option("--all", help="Of an array, also the elements that completed.")
    ] = False,
    is_waiting: Waiting = False,
    as_json: Json = False,
) -> None:
    """Enqueue an ended task again; of an array what did not complete, as a new array."""
    values: dict[str, Any] = {"queue": queue} if queue else {}
    if is_all:
        values["all"] = True
    client = client_of(context)
    task = client.task_do(task_id, "run-again", **values)
    answer(task, "state" if task["id"] == task_id else "id", as_json=as_json)
    if is_waiting:
        sys.stdout.flush()
        raise typer.Exit(wait(client, task["id"]))


@task_options
def edit(
    context: typer.Context,
    task_id: TaskId,
    words: Annotated[
        Optional[list[str]], typer.Argument(metavar="[-- COMMAND...]", help="Another command.")
    ] = None,
    *,
    file: Annotated[
        Optional[str],
        typer.Option("--file", "-f", help="Changed fields in YAML or JSON; - is the input."),
    ] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Change a draft: the given fields, and nothing else."""
    changes = merged(of_file(file) if file else {}, described(options))
    if words:
        changes["command"] = words
    if not changes:
        raise typer.BadParameter("Say what to change, such as --priority 2.")
    answer(client_of(context).task_change(task_id, changes), "name", as_json=as_json)


def priority(
    context: typer.Context,
    task_id: TaskId,
    value: Annotated[
        int,
        typer.Argument(
            metavar="PRIORITY", help="From -1000 to what the queue allows; higher starts first."
        ),
    ],
    *,
    as_json: Json = False,
) -> None:
    """Change the priority of a draft or a waiting task; prints the new one."""
    found = client_of(context).task_do(task_id, "priority", priority=value)
    answer(found, "priority", as_json=as_json)


def move(
    context: typer.Context,
    task_id: TaskId,
    queue: Annotated[str, typer.Argument(metavar="[QUEUE]", help="Another queue.")] = "",
    *,
    to: Annotated[str, typer.Option(help="In its queue: top, up, down or bottom.")] = "",
    before: Annotated[
        str, typer.Option(metavar="TASK", help="In its queue.", callback=whole_ids)
    ] = "",
    after: Annotated[
        str, typer.Option(metavar="TASK", help="In its queue.", callback=whole_ids)
    ] = "",
    as_json: Json = False,
) -> None:
    """Move a waiting task to another queue, or inside its queue; prints the queue."""
    if sum(map(bool, (queue, to, before, after))) != 1:
        raise typer.BadParameter("Give a queue, --to, --before or --after: one of them.")
    client = client_of(context)
    if queue:
        found = client.task_do(task_id, "change-queue", queue=queue)
    elif to:
        found = client.task_do(task_id, "reorder", move=to)
    else:
        values = {"move": "before" if before else "after", "other": before or after}
        found = client.task_do(task_id, "reorder", **values)
    answer(found, "queue", as_json=as_json)


def _filters(client: "Client", owner: str, *, is_all: bool, **filters: str) -> dict[str, str]:
    """The query parameters; the tasks of the user, unless others are wanted."""
    wanted = owner or ("" if is_all else client.account()["username"])
    return {name: value for name, value in {**filters, "owner": wanted}.items() if value}


def _write_lines(source: str, text: str) -> None:
    for line in plain(text).splitlines():
        sys.stdout.write(f"{source}  {line}\n")
    sys.stdout.flush()
