"""`rpmctl`: the commands, where to connect, and how errors end."""

import sys
from typing import Annotated

import typer

from rpm_client.cli import (
    configuration,
    copies,
    details,
    installation,
    login,
    members,
    nodes,
    nouns,
    resources,
    streams,
    submit,
    tasks,
    usage,
)
from rpm_client.cli.access import ServerAccess, client_of
from rpm_client.cli.output import Json, answer, complain
from rpm_client.cli.scripts import SubmitCommand
from rpm_client.errors import RefusedError, UnreachableError

# Exit codes, as docs/command-line.md lists them; 2 is wrong usage.
REFUSED = 1
UNREACHABLE = 3
UNKNOWN_CREDENTIAL = 401
app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Enqueue and manage tasks. `rpmctl login` keeps the server and a credential; RPM_URL, "
    "RPM_KEY and RPM_SECRET do without.",
)


@app.callback()
def connect(
    context: typer.Context,
    *,
    url: Annotated[str, typer.Option(envvar="RPM_URL", help="Address of the server.")] = "",
    key: Annotated[str, typer.Option(envvar="RPM_KEY", help="Key of a credential.")] = "",
    secret: Annotated[
        str, typer.Option(envvar="RPM_SECRET", help="Its secret; better by RPM_SECRET.")
    ] = "",
    token: Annotated[
        str, typer.Option(envvar="RPM_TOKEN", help="In place of both: what `token` printed.")
    ] = "",
    profile: Annotated[
        str, typer.Option(envvar="RPM_PROFILE", help="What `login` kept, by name.")
    ] = "",
) -> None:
    context.obj = ServerAccess(url, key, secret, token, profile)


def make_token(
    context: typer.Context,
    scope: Annotated[str, typer.Option(help="read or enqueue; default: all of it.")] = "",
    *,
    as_json: Json = False,
) -> None:
    """Print a short-lived token for the credential."""
    answer(client_of(context).token(scope), "token", as_json=as_json)


def main() -> None:
    """Run the command; what goes wrong ends it with one sentence and its exit code."""
    try:
        app()
    except RefusedError as error:
        # One line: what is wrong in YAML has several.
        complain(f"{error.code}: {' '.join(error.detail.split())}")
        if error.status == UNKNOWN_CREDENTIAL:
            complain("Run rpmctl login, or check RPM_KEY and RPM_SECRET, or RPM_TOKEN.")
        sys.exit(REFUSED)
    except UnreachableError as error:
        complain(f"{' '.join(str(error).split())} Check the address (rpmctl whoami), or try again.")
        sys.exit(UNREACHABLE)


app.command("login")(login.login)
app.command("logout")(login.logout)
app.command("whoami")(login.whoami)
app.command("token")(make_token)
app.command("enqueue", cls=SubmitCommand)(submit.enqueue)
app.command("run", cls=SubmitCommand)(submit.run)
app.command("list")(tasks.list_tasks)
app.command("show")(details.show)
app.command("explain")(details.explain)
app.command("attempts")(details.attempts)
app.command("logs")(tasks.logs)
app.command("exec")(streams.run_command)
app.command("shell")(streams.shell)
app.command("forward")(streams.forward)
app.command("cp")(copies.copy)
app.command("abort")(tasks.abort)
app.command("cancel")(tasks.cancel)
app.command("dequeue")(tasks.dequeue)
app.command("hold")(tasks.hold)
app.command("release")(tasks.release)
app.command("delete")(tasks.delete)
app.command("enqueue-draft")(tasks.enqueue_draft)
app.command("resume")(tasks.resume)
app.command("again")(tasks.again)
app.command("edit")(tasks.edit)
# An unknown option may be a negative number.
app.command("priority", context_settings={"ignore_unknown_options": True})(tasks.priority)
app.command("move")(tasks.move)
app.command("queues")(resources.queues)
app.command("pools")(resources.pools)
app.command("status")(usage.show_status)
app.command("usage")(usage.show_usage)
app.command("preview")(installation.preview)
app.command("maintenance")(installation.maintenance)
app.command("confirm-restored")(installation.confirm_restored)
app.add_typer(configuration.app, name="config")
app.add_typer(nodes.app, name="node")
for word, noun in nouns.NOUNS.items():
    noun_app = nouns.noun_app(word, noun)
    if word == "group":
        noun_app.add_typer(members.app, name="members")
    app.add_typer(noun_app, name=word)
