"""`rpmctl exec`, `shell` and `forward`: a command, a terminal or a port of a running task."""

import contextlib
import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rpm_client.cli.access import TaskId, resolve
from rpm_client.cli.outcomes import NO_CODE
from rpm_client.cli.output import complain
from rpm_client.errors import UnreachableError

if TYPE_CHECKING:
    from rpm_client.streams import TaskStream

Rank = Annotated[int, typer.Option(min=0, help="Member of a gang, from 0.")]
# What shells answer for a program that Ctrl-C has ended.
INTERRUPTED = 130
PORT_HIGHEST = 65_535
PART_BYTES = 32 * 1024
ERRORS = 33


def run_command(
    context: typer.Context,
    task_id: TaskId,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="And its arguments.")],
    *,
    rank: Rank = 0,
) -> None:
    """Run a command in the container of a running task; ends with its exit code."""
    stream = stream_of(context, task_id, kind="exec", command=command, rank=rank)
    # A terminal is no input: what is typed there stays for the next command.
    if sys.stdin.isatty():
        stream.send_end()
    else:
        _send_input(stream, ends=True)
    raise typer.Exit(_print(stream))


def shell(
    context: typer.Context,
    task_id: TaskId,
    command: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[-- COMMAND]", help="In place of bash or sh."),
    ] = None,
    *,
    rank: Rank = 0,
) -> None:
    """Open a terminal in the container of a running task; `exit` or Ctrl-D ends it."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("shell needs a terminal. Without one: rpmctl exec TASK -- COMMAND")
    columns, rows = shutil.get_terminal_size()
    stream = stream_of(
        context, task_id, kind="shell", command=command or [], rank=rank, size=(columns, rows)
    )
    with _raw_terminal():
        _send_input(stream, ends=False)
        code = _print(stream)
    raise typer.Exit(code)


def forward(
    context: typer.Context,
    task_id: TaskId,
    ports: Annotated[
        str,
        typer.Argument(metavar="PORT[:LOCAL]", help="Of the task, and of 127.0.0.1 (0: any)."),
    ],
    *,
    rank: Rank = 0,
) -> None:
    """Reach a port of a running task at 127.0.0.1; Ctrl-C ends it."""
    port, local = _ports(ports)
    stream = stream_of(context, task_id, kind="port", port=port, rank=rank)
    # The library of websockets is imported only where it is used.
    begin = import_module("rpm_client.port_forward").PortForward
    try:
        forward = begin(stream, local, lambda words: complain(f"Connection failed: {words}."))
    except OSError as error:
        raise typer.BadParameter(f"127.0.0.1:{local} is not free: {error.strerror}.") from error
    complain(f"127.0.0.1:{forward.port} is port {port} of the task. Ctrl-C ends this.")
    try:
        forward.run()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    complain("The task has ended.")
    raise typer.Exit(NO_CODE)


def _ports(text: str) -> tuple[int, int]:
    port, _, local = text.partition(":")
    numbers = [int(one) if one.isdecimal() else -1 for one in (port, local or port)]
    if not (0 < numbers[0] <= PORT_HIGHEST and 0 <= numbers[1] <= PORT_HIGHEST):
        raise typer.BadParameter("PORT or PORT:LOCAL, such as 8888 or 8888:9000, up to 65535.")
    return numbers[0], numbers[1]


def stream_of(context: typer.Context, task_id: str, **wanted: Any) -> "TaskStream":
    """A stream with the credential of the command; it is closed with the command."""
    server = resolve(context.obj)
    # The library of websockets is imported only where it is used.
    opened: TaskStream = import_module("rpm_client.streams").stream_open(
        server.url, task_id, key=server.key, secret=server.secret, token=server.token, **wanted
    )
    context.call_on_close(opened.close)
    return opened


def _print(stream: "TaskStream") -> int:
    """Write what comes where it belongs, byte for byte; the exit code."""
    try:
        for part in stream.parts():
            target = sys.stderr.buffer if part.kind == ERRORS else sys.stdout.buffer
            target.write(part.content)
            target.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    if stream.is_task_over:
        complain("The task has ended.\r")
    return NO_CODE if stream.exit_code is None else stream.exit_code


def _send_input(stream: "TaskStream", *, ends: bool) -> None:
    """Send standard input, and sizes of the terminal, from a thread of its own."""
    resized, resizing = os.pipe()
    if not ends:
        signal.signal(signal.SIGWINCH, lambda *_: os.write(resizing, b"!"))
    sender = threading.Thread(target=_send, args=(stream, resized), kwargs={"ends": ends})
    # It waits for input when the command has ended. Unbuffered reads hold no lock at the end.
    sender.daemon = True
    sender.start()


def _send(stream: "TaskStream", resized: int, *, ends: bool) -> None:
    given = sys.stdin.fileno()
    with contextlib.suppress(UnreachableError):
        while True:
            ready, _, _ = select.select([given, resized], [], [])
            if resized in ready:
                os.read(resized, PART_BYTES)
                stream.resize(*shutil.get_terminal_size())
            if given in ready:
                content = os.read(given, PART_BYTES)
                if not content:
                    break
                stream.send(content)
        if ends:
            stream.send_end()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the task, Ctrl-C too; the terminal is as before afterwards."""
    termios, tty = import_module("termios"), import_module("tty")
    given = sys.stdin.fileno()
    before = termios.tcgetattr(given)
    # What was typed before stays.
    tty.setraw(given, termios.TCSADRAIN)
    try:
        yield
    finally:
        # What a terminal answered to the task's last words is no input of the next command.
        termios.tcsetattr(given, termios.TCSAFLUSH, before)
