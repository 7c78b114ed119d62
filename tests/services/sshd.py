"""Real sshd nodes on loopback: own port, host key, account key and folder each."""

import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from apps.execution.transport.host_keys import HostKey
from apps.execution.transport.ssh import SshNode
from tests.services import ports
from tests.services.requirements import need
from tools.packages import find_program

ATTEMPTS = 3
# Its account has no start-up files, as on a prepared node: those of the developer's account may
# take longer than the requests.
CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
LogLevel VERBOSE
SetEnv HOME={folder} RPM_NODE_ALLOWLIST={folder}/allowlist.json
"""


@dataclass(slots=True)
class SshdNode:
    """A node to which the tests have the key. Its helper's home is a folder of its own."""

    folder: Path
    user: str
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return "127.0.0.1"

    @property
    def home(self) -> str:
        """Where the helper is to be installed."""
        return str(self.folder / "home")

    @property
    def allowlist(self) -> Path:
        """What its helper allows at most; the default while there is no such file."""
        return self.folder / "allowlist.json"

    @property
    def key_path(self) -> Path:
        return self.folder / "key"

    @property
    def private_key(self) -> str:
        return self.key_path.read_text()

    @property
    def host_key(self) -> HostKey:
        """The key that sshd shows."""
        kind, content, *_ = (self.folder / "host_key.pub").read_text().split()
        return HostKey(kind, content)

    def ssh_node(self, *, is_installed: bool = True) -> SshNode:
        """What a transport needs to know."""
        home = self.home if is_installed else ""
        return SshNode(
            self.address, self.port, self.user, self.private_key, self.host_key, home=home
        )

    def start(self) -> None:
        """Start sshd; on the same port as before if it ran before."""
        for _ in range(ATTEMPTS):
            port = self.port or ports.free_port()
            (self.folder / "config").write_text(CONFIG.format(port=port, folder=self.folder))
            process = _start_sshd(self.folder)
            try:
                ports.wait_for_server(process, lambda: ports.listens(process, port), what="sshd")  # noqa: B023  # called before the next round
            except ports.ServerDidNotStart:
                ports.stop(process, signal=signal.SIGTERM)
                continue
            self.port, self.process = port, process
            return
        raise ports.ServerDidNotStart((self.folder / "log").read_text(errors="replace")[-2000:])

    def stop(self) -> None:
        """Stop sshd and cut every connection; what runs on the node goes on."""
        if self.process is None:
            return
        for pid in _descendants(self.process.pid, name="sshd"):
            # A connection that was just closed ends its process too.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ports.stop(self.process, signal=signal.SIGTERM)
        self.process = None

    def change_host_key(self) -> None:
        """Show another key from the next start on."""
        _make_key(self.folder / "host_key")


StartSshNode = Callable[[], SshdNode]


@contextmanager
def running_sshd() -> Iterator[SshdNode]:
    """A node of its own, removed afterwards with whatever is left of its tasks.

    Raises:
        ServerDidNotStart: with the end of sshd's log.
    """
    with tempfile.TemporaryDirectory(prefix="rpm-test-node-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _make_key(folder / "host_key")
        _make_key(folder / "key")
        (folder / "authorized_keys").write_bytes((folder / "key.pub").read_bytes())
        node = SshdNode(folder, pwd.getpwuid(os.geteuid()).pw_name)
        node.start()
        try:
            yield node
        finally:
            node.stop()
            kill_helpers(node.home)


def helpers_of(home: str) -> list[int]:
    """The processes of one home's helper: exchanges, supervisors, stoppers."""
    helper = f"{home}/helper".encode()
    return [pid for pid in _pids() if helper in _read(pid, "cmdline").split(b"\0")]


def kill_helpers(home: str) -> None:
    """End the helper processes of one home and the tasks that they started without a container."""
    tasks = {pid for helper in helpers_of(home) for pid in _descendants(helper)}
    for pid in (*helpers_of(home), *tasks):
        _kill(pid)


@pytest.fixture
def start_ssh_node() -> Iterator[StartSshNode]:
    """Starts as many nodes as the test wants."""
    need("sshd")
    if os.geteuid() == 0:
        # Where sshd drops its rights to; Debian makes it when the service starts.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with ExitStack() as nodes:
        yield lambda: nodes.enter_context(running_sshd())


@pytest.fixture
def ssh_node(start_ssh_node: StartSshNode) -> SshdNode:
    """One real sshd node."""
    return start_ssh_node()


def _make_key(path: Path) -> None:
    path.unlink(missing_ok=True)
    program = find_program("ssh-keygen") or "ssh-keygen"
    command = [program, "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def _start_sshd(folder: Path) -> subprocess.Popen[bytes]:
    program = find_program("sshd") or "sshd"
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [program, "-D", "-e", "-f", str(folder / "config")],
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
        )


def _descendants(pid: int, *, name: str = "") -> list[int]:
    """The processes below this one, those with another program name left out with theirs."""
    parents: dict[int, list[int]] = {}
    for child in _pids():
        comm, _, rest = _read(child, "stat").rpartition(b")")
        if rest and (not name or comm.endswith(f"({name}".encode())):
            parents.setdefault(int(rest.split()[1]), []).append(child)
    found, open_ends = [], [pid]
    while open_ends:
        children = parents.get(open_ends.pop(), [])
        found += children
        open_ends += children
    return found


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
