"""`rpmctl config`: the configuration as a file, what a file would change, and applying it."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rpm_client.cli.access import client_of
from rpm_client.cli.installation import PREVIEWED, say_rows
from rpm_client.cli.output import Json, Yes, complain, confirm, say, say_json
from rpm_client.terminal import plain

if TYPE_CHECKING:
    from rpm_client.client import Client

# The most bytes of a configuration file that the server reads.
FILE_BYTES = 1_500_000
# Values of a change are cut, so that a change stays one line.
VALUE_LENGTH = 100
# docs/command-line.md, "Exit codes".
CHANGED = 4
# What a user confirms, by the lists of the preview.
HARMS = ("preempted", "rejected", "closed")

app = typer.Typer(no_args_is_help=True, help="Configuration as a file; for administrators.")
File = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - is the input.")]
Prune = Annotated[
    str,
    typer.Option(
        metavar="KINDS",
        help="Remove all that the file does not name of pools, profiles, policies, queues or "
        "rules; several by commas.",
    ),
]


@app.command()
def export(
    context: typer.Context,
    *,
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", metavar="FILE", help="Default: the output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of YAML.")] = False,
) -> None:
    """The live configuration as a file: applying it changes nothing."""
    text, revision = client_of(context).configuration_export("json" if as_json else "yaml")
    if as_json:
        text = f"{json.dumps(json.loads(text), indent=2)}\n"
    if output is None:
        sys.stdout.write(plain(text))
        return
    try:
        output.write_bytes(text.encode())
    except OSError as error:
        raise typer.BadParameter(f"{output} cannot be written: {error.strerror}.") from None
    complain(f"{output} holds revision {revision}.")


@app.command()
def diff(
    context: typer.Context,
    name: File,
    *,
    prune: Prune = "",
    has_code: Annotated[
        bool, typer.Option("--exit-code", help=f"End with {CHANGED} where something would change.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What a file would change, and its effect on tasks; nothing is kept."""
    found = client_of(context).configuration_diff(file_bytes(name), prune=_kinds(prune))
    if as_json:
        say_json(found)
    elif not found["is_changed"]:
        say("Nothing would change.")
    else:
        _say_changes(found)
        _say_effect(found["preview"])
    if has_code and found["is_changed"]:
        raise typer.Exit(CHANGED)


@app.command()
def apply(
    context: typer.Context,
    name: File,
    *,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.")] = False,
    note: Annotated[str, typer.Option(help="Of the revision, such as a commit.")] = "",
    revision: Annotated[
        Optional[int],
        typer.Option(metavar="N", min=0, help="The last one that you know; refused after others."),
    ] = None,
    version: Annotated[
        str,
        typer.Option(metavar="V", help="That of diff --json; refused if it changed since."),
    ] = "",
    prune: Prune = "",
    is_sure: Yes = False,
    as_json: Json = False,
) -> None:
    """Make the configuration as a file says, all or nothing; a second time changes nothing.

    Asks before it removes something or stops tasks; without a terminal, give --yes for that.
    """
    client, file, kinds = client_of(context), file_bytes(name), _kinds(prune)
    if not (is_dry_run or is_sure):
        seen = _confirmed(client, file, kinds)
        revision = seen.get("revision") if revision is None else revision
        version = version or seen.get("version", "")
    found = client.configuration_apply(
        file, note=note, revision=revision, version=version, prune=kinds, is_dry_run=is_dry_run
    )
    if as_json:
        say_json(found)
    elif not found["is_changed"]:
        say("Nothing would change." if is_dry_run else "Nothing changed.")
    else:
        _say_changes(found)
        say("Nothing is applied." if is_dry_run else f"Applied; revision {found['revision']}.")


def file_bytes(name: str) -> bytes:
    """The content of a file, or of the input.

    Raises:
        BadParameter: it cannot be read, is empty, or is larger than the server accepts.
    """
    try:
        if name == "-":
            content = sys.stdin.buffer.read(FILE_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror}.") from None
    if len(content) > FILE_BYTES:
        raise typer.BadParameter(f"{name} is too large: at most {FILE_BYTES} bytes can be sent.")
    if not content.strip():
        # With --prune, an empty file would remove everything.
        raise typer.BadParameter(f"{name} is empty: give what rpmctl config export prints.")
    return content


def _confirmed(client: "Client", file: bytes, kinds: list[str]) -> dict[str, Any]:
    """Ask where the file removes something or stops tasks; the state that was looked at."""
    found = client.configuration_diff(file, prune=kinds)
    preview = found["preview"]
    removed = [one["sentence"] for one in found["changes"] if one["what"] == "removed"]
    harms = [f"{preview[one]['count']} {PREVIEWED[one]}" for one in HARMS if preview[one]["count"]]
    if not removed and not harms:
        return {}
    for line in (*removed, *harms):
        complain(line)
    confirm("Apply it?")
    # What was confirmed is what is applied.
    return found


def _kinds(prune: str) -> list[str]:
    return [one.strip() for one in prune.split(",") if one.strip()]


def _say_changes(found: dict[str, Any]) -> None:
    for change in found["changes"]:
        line = change["sentence"]
        # The sentence of a setting has its values.
        if change["field"] and change["kind"] != "settings":
            line += f": {_value(change['before'])} to {_value(change['after'])}"
        say(" ".join(line.split()))


def _say_effect(preview: dict[str, Any]) -> None:
    """Counts that are not zero, and the tasks; waiting tasks that stay so are no effect."""
    effects = {one: words for one, words in PREVIEWED.items() if one != "waiting"}
    counts = [(preview[one]["count"], words) for one, words in effects.items()]
    if not any(count for count, _ in counts):
        say("No task is affected.")
    for count, words in counts:
        if count:
            say(f"{count:>6}  {words}")
    say_rows(preview, preview["rejected"]["rows"])


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_LENGTH else f"{text[:VALUE_LENGTH]}..."
