"""A stand-in for nvidia-cuda-mps-control, which records how it is driven.

It shows that a daemon is started with the right arguments and variables, before the task, once,
as the right user, and ended by the right word. It enforces nothing and speaks to no CUDA program:
whether the limits hold is for `tests/gpu` to say.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.requirements import need

# Daemon and server go by the name of this file, as the real ones share their first 15 letters.
SCRIPT = """\
#!/bin/sh
here=$(dirname "$0")
pipe=$CUDA_MPS_PIPE_DIRECTORY
note() {
    shm=$(stat -c %i /dev/shm)
    printf '%s user=%s:%s device=%s log=%s shm=%s pipe=%s\\n' "$1" "$(id -u)" "$(id -g)" \\
        "$CUDA_VISIBLE_DEVICES" "$CUDA_MPS_LOG_DIRECTORY" "$shm" "$pipe" >>"$here/calls"
}
if [ "${1:-}" != -d ]; then
    read -r word
    note "$word"
    if [ -e "$here/deaf" ]; then sleep 60; fi
    if [ "$word" = quit ]; then : >"$pipe/quit"; fi
    exit 0
fi
note start
if [ -e "$here/broken" ]; then
    echo "An instance of this daemon is already running"
    exit 1
fi
(
    exec </dev/null >/dev/null 2>&1
    (while :; do sleep 0.05; done) &
    echo $! >"$pipe/server"
    while [ ! -e "$pipe/quit" ]; do sleep 0.05; done
    kill $!
    rm "$pipe/nvidia-cuda-mps-control.pid"
) &
echo $! >"$pipe/nvidia-cuda-mps-control.pid"
"""


@dataclass(frozen=True, slots=True)
class MpsControl:
    """The stand-in: the folder of the program and of what it recorded."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """A node's variables under which its helper finds the stand-in first."""
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def calls(self) -> list[dict[str, str]]:
        """One call; `word` is "start" or the command that it received."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [
            {"word": word} | dict(fact.split("=", 1) for fact in facts)
            for word, *facts in (line.split(" ") for line in lines)
        ]

    def words(self) -> list[str]:
        """What happened, in order."""
        return [call["word"] for call in self.calls()]

    def be(self, state: str) -> None:
        """From now on it does not start ("broken") or does not listen ("deaf")."""
        (self.folder / state).touch()


@pytest.fixture
def mps_control() -> Iterator[MpsControl]:
    """A machine that has MPS, as far as the helper can see."""
    if os.geteuid() != 0:
        need("root", because="only a helper that runs as root starts MPS for others")
    # Not below pytest's own folder, which is closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="rpm-test-mps-"))
    folder.chmod(0o777)
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    # Written to under every user that has a daemon.
    (folder / "calls").touch()
    (folder / "calls").chmod(0o666)
    yield MpsControl(folder)
    # What a failed test left: known by the path of the program.
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(program).encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
    for call in MpsControl(folder).calls():
        home = Path(call["pipe"]).parent.parent
        for left in (home, Path("/dev/shm") / f"rpm-mps-{home.name}"):
            shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(folder)
