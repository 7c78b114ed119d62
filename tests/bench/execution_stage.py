"""What both sides of `execution.py` share: the programs, their gates, and what is left of them."""

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.services.podman import PodmanStore

LOOK_S = 0.004
WITHIN_S = 60.0
# Each says when it began and when it ends, on the clock that all containers share with the machine:
# /proc/uptime, in steps of 10 ms. Between the two it waits at its gate without any work.
SCRIPTS = {
    "ends": """
trap 'exit 143' TERM
cat /proc/uptime
cat "/volumes/gates/$GATE" & wait $!
cat /proc/uptime
""",
    "ignores": """
trap '' TERM
cat /proc/uptime
cat "/volumes/gates/$GATE"
cat /proc/uptime
""",
}


def now_s() -> float:
    """This moment on the clock of /proc/uptime, in finer steps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wait_until(look: Callable[[], bool], *, what: str, within_s: float = WITHIN_S) -> float:
    """When it was first seen.

    Raises:
        TimeoutError: it never was.
    """
    until = now_s() + within_s
    while not look():
        if now_s() > until:
            raise TimeoutError(f"never happened: {what}")
        time.sleep(LOOK_S)
    return now_s()


@dataclass(frozen=True, slots=True)
class Container:
    """A running one, as the kernel and podman's store know it: reading them costs nothing."""

    processes: tuple[Path, ...]
    layer: Path

    def gone_s(self) -> float:
        """When its processes were gone, and podman had removed it."""
        return wait_until(self._is_gone, what=f"{self.layer.name} is gone")

    def _is_gone(self) -> bool:
        return not any(path.exists() for path in (*self.processes, self.layer))


@dataclass(frozen=True, slots=True)
class Stage:
    """The node's podman, and the folder in which programs have their gates."""

    podman: PodmanStore
    gates: Path

    def make_gate(self, name: str) -> None:
        """A pipe; its reader waits until it has been opened for writing."""
        path = self.gates / name
        os.mkfifo(path)
        # Nobody in a container is root.
        os.chmod(path, 0o666)

    def open_gate(self, name: str) -> None:
        """Let the program behind it end."""

        def is_open() -> bool:
            try:
                os.close(os.open(self.gates / name, os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                if error.errno == errno.ENXIO:
                    # It has not come to its gate yet.
                    return False
                raise
            return True

        wait_until(is_open, what=f"{name} is at its gate")

    def container(self, selector: str) -> Container:
        """The one running container of this podman filter, such as `name=bare-1`."""
        words = ["ps", "--no-trunc", f"--filter={selector}", "--format={{.ID}} {{.Pid}}"]
        [line] = self.podman.run(*words).stdout.decode().splitlines()
        name, pid = line.split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        layer = self._layers / name
        if not layer.exists():
            raise RuntimeError(f"podman keeps {name} somewhere else")
        return Container(tuple(Path("/proc", one) for one in (pid, *children)), layer)

    def is_bare(self) -> bool:
        """Whether no container is left, neither a running one nor one that has ended."""
        return not any(path.is_dir() for path in self._layers.iterdir())

    @property
    def _layers(self) -> Path:
        return self.podman.folder / "graph" / "vfs-containers"
