"""`rpmctl enqueue` and `rpmctl run`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rpm_client.bounds import NAME_LENGTH
from rpm_client.cli.access import client_of
from rpm_client.cli.outcomes import follow, wait
from rpm_client.cli.output import Json, complain, say, say_json
from rpm_client.cli.scripts import IS_COMMAND, read_script, script_command, script_fields
from rpm_client.cli.task_options import described, merged, task_options
from rpm_client.cli.yaml_text import yaml_value
from rpm_client.logs import LogReader

if TYPE_CHECKING:
    from rpm_client.client import Client

Words = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="[SCRIPT [ARGUMENT]...] | [-- COMMAND...]",
        help="A script of this machine, or after -- what to run in the container.",
    ),
]
TaskFile = Annotated[
    Optional[str],
    typer.Option("--file", "-f", help="A task in YAML or JSON, as REST takes it; - is the input."),
]
Waiting = Annotated[
    bool, typer.Option("--wait", help="Until it has ended; ends with its exit code.")
]


@task_options
def enqueue(
    context: typer.Context,
    words: Words = None,
    *,
    file: TaskFile = None,
    dry_run: Annotated[bool, typer.Option(help="Say whether it would run now.")] = False,
    is_waiting: Waiting = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Enqueue a new task, or keep it as a draft; prints its id.

    A script may name options in lines such as `#RPM --queue team --gpus 2` at its top. Options of
    the command line count over those of the script, and these over the file.
    """
    description = _description(context, words or [], file, options)
    client = client_of(context)
    if dry_run:
        found = client.task_check(description)
        if as_json:
            say_json(found)
        else:
            _checked(found)
        return
    task = client.task_submit(description)
    if as_json:
        say_json(task)
    else:
        say(task["id"])
    if is_waiting:
        _refuse_draft(description)
        sys.stdout.flush()
        raise typer.Exit(wait(client, task["id"]))


@task_options
def run(
    context: typer.Context,
    words: Words = None,
    *,
    file: TaskFile = None,
    **options: Any,
) -> None:
    """Enqueue a task, print what it writes, and end with its exit code.

    Ctrl-C asks whether to abort the task or to leave it running.
    """
    description = _description(context, words or [], file, options)
    _refuse_draft(description)
    client = client_of(context)
    task = client.task_submit(description)
    complain(f"Task {task['id']} is {task['state']}.")
    raise typer.Exit(_followed(client, task["id"]))


def _followed(client: "Client", task_id: str) -> int:
    log = LogReader(client, task_id)
    try:
        return follow(client, task_id, log)
    except KeyboardInterrupt:
        if not is_terminal() or not _is_abort_chosen():
            complain(f"The task goes on: rpmctl logs --follow {task_id}, rpmctl abort {task_id}.")
            return 130
        client.task_do(task_id, "abort")
        return follow(client, task_id, log)


def is_terminal() -> bool:
    """Whether a user can answer a question."""
    return sys.stdin.isatty()


def _is_abort_chosen() -> bool:
    """What Ctrl-C means; a second one leaves the task running."""
    try:
        return bool(typer.confirm("\nAbort the task? Without, it goes on", err=True))
    except (KeyboardInterrupt, typer.Abort):
        return False


def _description(
    context: typer.Context, words: list[str], file: Optional[str], options: dict[str, Any]
) -> dict[str, Any]:
    """The task of the file, the script and the options, in this order."""
    description = of_file(file) if file else {}
    given = described(options)
    name = ""
    if words and context.meta[IS_COMMAND]:
        given["command"] = words
    elif words:
        text, name = read_script(words[0]), Path(words[0]).name
        description = merged(description, script_fields(context.command, words[0], text))
        given["command"] = script_command(words[0], text, words[1:])
    description = merged(description, given)
    if "name" not in description:
        name = name or _text(description.get("command")) or _text(description.get("image"))
        description["name"] = " ".join(name.split())[:NAME_LENGTH]
    return description


def _text(value: Any) -> str:
    """A command or an image as text; the server judges whether it is one."""
    words = value if isinstance(value, list) else [value or ""]
    return " ".join(map(str, words))


def of_file(name: str) -> dict[str, Any]:
    """The task of a file; JSON is YAML, too."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        found = yaml_value(text)
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise typer.BadParameter(f"{name} is not YAML of a task: {error}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{name} holds no task: give its fields, such as name and queue.")
    return found


def _refuse_draft(description: dict[str, Any]) -> None:
    if not description.get("queue"):
        raise typer.BadParameter("A draft never runs: give --queue.")


def _checked(found: dict[str, Any]) -> None:
    """Whether it would run; if not, why, what would help, and who comes first."""
    say(found["sentence"])
    if not found["would_run"]:
        say(f"  {found['help']}")
        for reason in found["reasons"][1:]:
            say(f"Also: {reason['sentence']}")
        say(f"Waiting tasks of its queue before it: {found['ahead']}")
