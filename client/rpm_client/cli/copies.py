"""`rpmctl cp`: files to and from a running task."""

import contextlib
import os
import posixpath
import re
import threading
from collections.abc import Iterator
from tarfile import TarError
from typing import TYPE_CHECKING, Annotated, Callable, Optional

import typer

from rpm_client import archives
from rpm_client.cli.access import whole_id
from rpm_client.cli.outcomes import NO_CODE
from rpm_client.cli.output import complain
from rpm_client.cli.streams import ERRORS, INTERRUPTED, PART_BYTES, Rank, stream_of
from rpm_client.errors import UnreachableError

if TYPE_CHECKING:
    from rpm_client.streams import TaskStream

FAILED = 1
# The arguments are paths of users: no part of the program.
_SEND = 'exec tar -c -f - -C "$1" -- "$2"'
# A file gets its name when all of it is there. Devices and pipes are written to, and so is what a
# link names.
_FILE = """
case $1 in */) [ -d "$1" ] || { echo "$1 is no folder." >&2; exit 1; } ;; esac
path=$1; if [ -d "$path" ]; then path=$path/$2; fi
if [ -e "$path" ] && [ ! -f "$path" ]; then exec cat > "$path"; fi
if [ -h "$path" ] && real=$(readlink -f -- "$path"); then path=$real; fi
case $path in */*) part=${path%/*}/$4 ;; *) part=./$4 ;; esac
trap 'rm -f -- "$part"' EXIT
cat > "$part" || exit 1
[ "$(wc -c < "$part")" -eq "$5" ] || { echo "Not all of $2 has come." >&2; exit 1; }
chmod -- "$3" "$part" && mv -f -- "$part" "$path"
"""
_FOLDER = """
path=$1
if [ -d "$path" ]; then
  if [ "$2" != . ]; then path=$path/$2; mkdir -p "$path" || exit 1; fi
else mkdir "$path" || exit 1; fi
exec tar -x -o -f - -C "$path"
"""


def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="TASK:PATH, or a path here.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The other of these.")],
    *,
    rank: Rank = 0,
) -> None:
    """Copy a file or folder from a running task, or into it, as `docker cp` does."""
    there, here = _task_path(source), _task_path(target)
    if (there is None) == (here is None):
        raise typer.BadParameter(
            "One of the two is TASK:PATH; write ./a:b for a file of this name."
        )
    if there is not None:
        _fetch(context, whole_id(context, there[0]), there[1], target, rank)
    elif here is not None:
        _send(context, source, whole_id(context, here[0]), here[1], rank)


def _task_path(text: str) -> Optional[tuple[str, str]]:
    found = re.fullmatch(r"([0-9A-Za-z-]+):(.*)", text, re.DOTALL)
    return (found[1], found[2] or ".") if found else None


def _fetch(context: typer.Context, task_id: str, path: str, target: str, rank: int) -> None:
    if not archives.has_filter():
        words = "rpmctl cp needs a Python whose tarfile has filters: 3.12, or a late 3.9 to 3.11."
        raise typer.BadParameter(words)
    folder, name = _split(path)
    command = ["sh", "-c", _SEND, "cp", folder, name]
    stream = stream_of(context, task_id, kind="exec", command=command, rank=rank)
    stream.send_end()
    parts = _output(stream)
    try:
        archives.unpack(archives.PartsFile(parts), name, target)
    except archives.UnsafeArchive as error:
        complain(f"Refused: {error}.")
        raise typer.Exit(FAILED) from error
    except OSError as error:
        complain(f"Not copied: {error}")
        raise typer.Exit(FAILED) from error
    except TarError as error:
        # Words of the task's tar come first, where it has any.
        for _ in parts:
            pass
        complain(f"Not copied: {error}")
        raise typer.Exit(FAILED) from error
    for _ in parts:
        pass
    raise typer.Exit(_code_of(stream))


def _split(path: str) -> tuple[str, str]:
    """The folder that tar goes to, and the name that it packs; `x/.` is what is in x."""
    if path == "." or path.endswith("/."):
        return path, "."
    folder, name = posixpath.split(path.rstrip("/") or "/")
    return (folder or ".", name) if name and name != ".." else (path, ".")


def _output(stream: "TaskStream") -> Iterator[bytes]:
    for part in stream.parts():
        if part.kind == ERRORS:
            complain(part.content.decode(errors="replace").rstrip("\n"))
        else:
            yield part.content


def _send(context: typer.Context, source: str, task_id: str, path: str, rank: int) -> None:
    is_folder = os.path.isdir(source)
    if not is_folder and not os.path.isfile(source):
        raise typer.BadParameter(f"{source} is neither a file nor a folder.")
    is_content = source == "." or source.endswith("/.")
    name = "." if is_content else os.path.basename(os.path.abspath(source))
    program = _FOLDER if is_folder else _FILE
    found = os.stat(source)
    facts = [f"{found.st_mode & 0o777:o}", archives.part_name(), str(found.st_size)]
    command = ["sh", "-c", program, "cp", path, name, *facts]
    stream = stream_of(context, task_id, kind="exec", command=command, rank=rank)
    sender = _Sender(stream, _folder_of(source) if is_folder else _file_of(source, found.st_size))
    sender.start()
    try:
        _wait_for_end(stream)
    except KeyboardInterrupt:
        # The program there removes what it has; a second Ctrl-C does not wait for that.
        sender.stop()
        _wait_for_end(stream)
        raise typer.Exit(INTERRUPTED) from None
    if sender.error is not None:
        complain(f"Not copied: {sender.error}")
        raise typer.Exit(FAILED)
    raise typer.Exit(_code_of(stream))


def _wait_for_end(stream: "TaskStream") -> None:
    for _ in _output(stream):
        pass


def _code_of(stream: "TaskStream") -> int:
    if stream.is_task_over:
        complain("The task has ended.")
    return NO_CODE if stream.exit_code is None else stream.exit_code


def _folder_of(source: str) -> Callable[[Callable[[bytes], None]], None]:
    return lambda write: archives.pack(source, write)


def _file_of(source: str, size: int) -> Callable[[Callable[[bytes], None]], None]:
    def read(write: Callable[[bytes], None]) -> None:
        # What is appended meanwhile is not copied.
        left = size
        with open(source, "rb") as content:
            while part := content.read(min(left, PART_BYTES)):
                write(part)
                left -= len(part)
        if left:
            raise OSError(f"{source} has become shorter.")

    return read


class _Interrupted(Exception):
    """The rest is not sent."""


class _Sender(threading.Thread):
    """Sends while what the task says is read."""

    def __init__(
        self, stream: "TaskStream", work: Callable[[Callable[[bytes], None]], None]
    ) -> None:
        super().__init__(daemon=True)
        self.error: Optional[Exception] = None
        self._stream = stream
        self._work = work
        self._is_stopped = False

    def stop(self) -> None:
        """Send no more than the end."""
        self._is_stopped = True

    def run(self) -> None:
        # What the other thread reads says why it is cut.
        with contextlib.suppress(UnreachableError):
            try:
                self._work(self._write)
            except (OSError, TarError, _Interrupted) as error:
                # The program there sees that not all has come.
                self.error = error
            self._stream.send_end()

    def _write(self, content: bytes) -> None:
        if self._is_stopped:
            raise _Interrupted
        self._stream.send(content)
