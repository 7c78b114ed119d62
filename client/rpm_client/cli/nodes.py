"""`rpmctl node`: actions of administrators on nodes."""

from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

import typer

from rpm_client.cli.access import client_of
from rpm_client.cli.output import Json, confirm, say, say_json, table
from rpm_client.cli.task_options import pair

if TYPE_CHECKING:
    from rpm_client.client import Client

app = typer.Typer(no_args_is_help=True, help="Nodes; for administrators.")

Name = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")]
Address = "Where the server reaches the machine by SSH."
User = "The account of RPM on the machine."
Port = Annotated[Optional[int], typer.Option(min=1, max=65535, help="Of SSH.")]
Reason = Annotated[str, typer.Option(help="Why.")]
Labels = Annotated[Optional[list[str]], typer.Option(metavar="NAME=VALUE", help="Repeatable.")]
Caps = Annotated[
    Optional[list[str]],
    typer.Option(
        metavar="KEY=AMOUNT", help="The most that the node gives out; the system has the rest."
    ),
]
Pool = Annotated[Optional[str], typer.Option(help="The pool's name.")]
Key = Annotated[Optional[str], typer.Option(help="A private key's file in RPM_HOME on the server.")]
Runtime = Annotated[Optional[str], typer.Option(help="podman, docker or process.")]
StateDir = Annotated[Optional[str], typer.Option(help="The folder of the helper on the machine.")]
AllowProcess = Annotated[
    Optional[bool],
    typer.Option("--allow-process/--no-allow-process", help="Tasks without a container."),
]


@app.command("list")
def list_nodes(context: typer.Context, *, as_json: Json = False) -> None:
    """All nodes: name, pool, address, state, and what is wrong."""
    found = list(client_of(context).nodes())
    if as_json:
        say_json(found)
        return
    rows = [
        {
            "name": node["name"],
            "pool": node["pool"] or "-",
            "address": node["address"] or "-",
            "state": _state(node),
            "problem": node["state_detail"] or node["preflight_detail"],
        }
        for node in found
    ]
    table(("name", "pool", "address", "state", "problem"), rows)


@app.command()
def add(
    context: typer.Context,
    name: Name,
    *,
    address: Annotated[str, typer.Option(help=Address)],
    user: Annotated[str, typer.Option(help=User)],
    key: Annotated[str, typer.Option(help="A private key's file in RPM_HOME on the server.")],
    port: Port = 22,
    pool: Pool = None,
    runtime: Runtime = None,
    allow_process: AllowProcess = None,
    state_dir: StateDir = None,
    label: Labels = None,
    cap: Caps = None,
    same_machine: Annotated[
        bool, typer.Option("--same-machine", help="Add it although the machine is a node already.")
    ] = False,
    fingerprint: Annotated[str, typer.Option(help="SHA256:...; asks otherwise.")] = "",
) -> None:
    """Reach a machine, confirm its host key, show what is wrong with it, and add it."""
    client = client_of(context)
    facts = {"name": name, "address": address, "user": user, "key": key, "port": port}
    facts |= _facts(
        client,
        pool=pool,
        label=label,
        cap=cap,
        runtime=runtime,
        state_dir=state_dir,
        allows_process=allow_process,
        is_shared_machine=same_machine or None,
    )
    if not fingerprint:
        shown = client.node_check(facts)
        fingerprint = shown["fingerprint"]
        say(f"{address} shows {shown['kind']} {fingerprint}")
        confirm("Is this the machine's own key?")
    facts["fingerprint"] = fingerprint
    for finding in client.node_check(facts)["findings"]:
        say(f"{'ok ' if finding['is_fine'] else 'BAD'} {finding['name']:<8} {finding['words']}")
        if finding["fix"]:
            say(f"    {'':<8} {finding['fix']}")
    say(f"{name} is added: {_state(client.node_add(facts))}")


@app.command("set")
def change(
    context: typer.Context,
    name: Name,
    *,
    rename: Annotated[Optional[str], typer.Option(help="Its new name.")] = None,
    address: Annotated[Optional[str], typer.Option(help=Address)] = None,
    port: Port = None,
    user: Annotated[Optional[str], typer.Option(help=User)] = None,
    key: Key = None,
    pool: Pool = None,
    runtime: Runtime = None,
    allow_process: AllowProcess = None,
    state_dir: StateDir = None,
    label: Labels = None,
    cap: Caps = None,
) -> None:
    """Change a node; RPM tests another address, account or key before it keeps it.

    The given labels together replace the previous ones; so do caps.
    """
    client = client_of(context)
    given = {"name": rename, "address": address, "port": port, "user": user, "key": key}
    facts = {field: value for field, value in given.items() if value is not None}
    facts |= _facts(
        client,
        pool=pool,
        label=label,
        cap=cap,
        runtime=runtime,
        state_dir=state_dir,
        allows_process=allow_process,
    )
    say(_state(client.node_change(name, facts)))


@app.command()
def rekey(
    context: typer.Context,
    name: Name,
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="It was set up again, or is another machine.")
    ] = False,
    reason: Reason = "",
    fingerprint: Annotated[str, typer.Option(help="SHA256:...; asks otherwise.")] = "",
) -> None:
    """Pin the host key that the machine shows now; shows the old and the new fingerprint."""
    client = client_of(context)
    if not fingerprint:
        keys = client.node_host_key(name)
        fingerprint = keys["shown"]
        say(f"pinned: {keys['pinned'] or '-'}")
        say(f"shown:  {fingerprint} ({keys['kind']})")
        confirm("Is this the machine's own key?")
    values = {"fingerprint": fingerprint, "is_replaced": replace, "reason": reason}
    client.node_do(name, "rekey", **values)
    say(f"{name}: {fingerprint} is pinned, and the machine has answered.")


@app.command()
def remove(
    context: typer.Context,
    name: Name,
    *,
    force: Annotated[bool, typer.Option("--force", help="Stop what runs there.")] = False,
    reason: Annotated[
        str, typer.Option(help="With --force: why a node that does not answer is certainly off.")
    ] = "",
) -> None:
    """Remove a node on which nothing runs; its name is free then."""
    removed = client_of(context).node_do(name, "remove", force=force, reason=reason)
    if removed["stops"]:
        say(f"stopped for that: {', '.join(removed['stops'])}")
    say(_state(removed))


@app.command()
def pause(context: typer.Context, name: Name, *, reason: Reason = "") -> None:
    """Pause a node: it starts no new tasks, and running tasks continue."""
    say(_state(client_of(context).node_do(name, "pause", reason=reason)))


@app.command()
def resume(context: typer.Context, name: Name) -> None:
    """End the pause and the draining of a node, and cancel its removal."""
    say(_state(client_of(context).node_do(name, "resume")))


@app.command()
def drain(context: typer.Context, name: Name) -> None:
    """Drain a node: it finishes its tasks and starts no new ones."""
    say(_state(client_of(context).node_do(name, "drain")))


@app.command()
def off(context: typer.Context, name: Name, *, reason: Reason = "") -> None:
    """Declare that a silent machine is switched off: its tasks are lost."""
    say(_state(client_of(context).node_do(name, "declare-off", reason=reason)))


@app.command("dismiss-serial")
def dismiss_serial(context: typer.Context, name: Name) -> None:
    """Dismiss the warning that a node reported a serial that this installation did not sign."""
    say(_state(client_of(context).node_do(name, "dismiss-serial")))


def _facts(
    client: "Client",
    *,
    pool: Optional[str],
    label: Optional[list[str]],
    cap: Optional[list[str]],
    **plain_facts: Union[str, bool, None],
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        name: value for name, value in plain_facts.items() if value is not None
    }
    if pool is not None:
        facts["pool"] = client.pool_id(pool)
    if label is not None:
        facts["labels"] = dict(pair(one, "--label") for one in label)
    if cap is not None:
        facts["capacity_cap"] = dict(pair(one, "--cap") for one in cap)
    return facts


def _state(node: dict[str, Any]) -> str:
    """The state of a node in a few words: the requested state, with its reason, comes first."""
    reason = " ".join(node["pause_reason"].split())
    reason = f" ({reason})" if reason else ""
    words = [
        word
        for word, is_so in (
            ("removed", node["removed_at"]),
            ("being removed", node["removal_asked_at"]),
            ("switched off", node["off_at"]),
            (f"paused{reason}", node["is_paused"]),
            ("draining" if node["is_paused"] else f"draining{reason}", node["is_draining"]),
        )
        if is_so
    ]
    return "removed" if node["removed_at"] else ", ".join([*words, str(node["state"])])
