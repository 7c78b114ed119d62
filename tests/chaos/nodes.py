"""Nodes of a chaos run: each a network, mount and process namespace of its own.

A node has its own address, boot id, wall clock, disk, sshd and podman store; a reboot kills all its
processes at once. Needs root.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from uuid import uuid4

from apps.execution.node.channel import HEADER, OPENING
from apps.execution.transport.host_keys import HostKey
from tests.chaos.machine import (
    boot_clock,
    children,
    clear_cgroups,
    descendants,
    fill,
    kill,
    make_key,
    read,
    run,
    set_clock,
)
from tests.services import ports
from tools.packages import find_program

PORT = 22
DISK_MB = 64
CONFIG = """\
ListenAddress {address}
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
SetEnv {variables}
"""
# The first process of a node: adopts whatever lost its parent, and the kernel reaps it.
INIT = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    signal.pause()
"""
# Stands before python3 on a node and keeps what comes, as a network would that repeats it later.
# The helper takes the place of this script, so that its end is the end of the session.
RECORDER = """\
#!/bin/bash
case "$2" in
*/helper)
    kept=$(mktemp {folder}/requests/XXXXXX)
    exec {python} "$@" < <(exec tee "$kept" 2>/dev/null)
    ;;
esac
exec {python} "$@"
"""
# A server that accepts and never says a word, as a hung sshd does.
MUTE = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
kept = []
while True:
    kept.append(server.accept())
"""


@dataclass(slots=True)
class ChaosNode:
    """One node.

    Args:
        here: where its own folder is seen from inside; the same path on every node.
        address, gateway: its end of the cable and the control plane's.
    """

    name: str
    folder: Path
    here: Path
    cable: str
    address: str
    gateway: str
    runtime: str
    store: Path | None = None
    clock_library: Path | None = None
    init: int = 0
    is_up: bool = False
    downs: list[float] = field(default_factory=list)
    _unshare: subprocess.Popen[bytes] | None = None
    _sshd: subprocess.Popen[bytes] | None = None
    _mute: subprocess.Popen[bytes] | None = None

    @property
    def network(self) -> str:
        return f"rpm-{self.cable}"

    @property
    def home(self) -> Path:
        """Where the helper lives: on a small disk of its own."""
        return self.folder / "disk" / "home"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead podman to the node's own store."""
        if self.store is None:
            return {}
        return {
            "CONTAINERS_CONF": f"{self.store}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{self.store}/storage.conf",
        }

    @property
    def key_path(self) -> Path:
        return self.folder / "key"

    @property
    def journal(self) -> Path:
        return self.folder / "here" / "journal"

    @property
    def host_key(self) -> HostKey:
        kind, content, *_ = (self.folder / "host_key.pub").read_text().split()
        return HostKey(kind, content)

    def make(self) -> None:
        """Make everything that outlives a reboot: disk, keys, cable."""
        for name in ("disk", "here"):
            (self.folder / name).mkdir(parents=True)
        os.chmod(self.folder / "here", 0o777)
        self.here.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "rpm-chaos", self.folder / "disk")
        make_key(self.folder / "host_key")
        make_key(self.key_path)
        (self.folder / "authorized_keys").write_bytes((self.folder / "key.pub").read_bytes())
        self.set_clock(0)
        self._record_launches()
        run("ip", "netns", "add", self.network)
        outer, inner = f"{self.cable}h", f"{self.cable}n"
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        run("ip", "link", "set", inner, "netns", self.network)
        run("ip", "addr", "add", f"{self.gateway}/30", "dev", outer)
        run("ip", "link", "set", outer, "up")
        for words in (
            ("addr", "add", f"{self.address}/30", "dev", inner),
            ("link", "set", inner, "up"),
            ("link", "set", "lo", "up"),
        ):
            run("ip", "-n", self.network, *words)

    def _record_launches(self) -> None:
        for name in ("bin", "requests"):
            (self.folder / name).mkdir()
        program = self.folder / "bin" / "python3"
        # The interpreter itself: what stands first in the PATH may be a program that looks for one.
        python = Path(sys.executable).resolve()
        program.write_text(RECORDER.format(folder=self.folder, python=python))
        program.chmod(0o755)

    def launches(self) -> list[bytes]:
        """What the node was asked to launch, the latest first."""
        files = sorted(
            (self.folder / "requests").iterdir(), key=lambda path: -path.stat().st_mtime_ns
        )
        return [
            request
            for path in files
            for request in reversed(_requests(path.read_bytes()))
            if b'"verb":"launch"' in request
        ]

    def repeat(self, launch: bytes) -> None:
        """The same request comes once more; nobody hears the answer."""
        with TemporaryFile() as request:
            request.write(launch)
            request.seek(0)
            self._inside("python3", "-ES", f"{self.home}/helper", stdin=request.fileno())

    def remove(self) -> None:
        """End every process of the node and remove it again; safe to repeat."""
        self.power_off()
        run("ip", "link", "del", f"{self.cable}h", check=False)
        run("ip", "netns", "del", self.network, check=False)
        run("umount", "-l", self.folder / "disk", check=False)

    def boot(self) -> None:
        """Start the node under a new boot id, without sshd yet."""
        boot_id = self.folder / "boot_id"
        boot_id.write_text(f"{uuid4()}\n")
        # Nodes are without anybody's start-up files: those of a shell that is killed half-way can
        # leave locks behind, on the machine and for everybody.
        start_up = Path.home() / ".bashrc"
        hidden = f"mount --bind /dev/null {start_up} && " if start_up.exists() else ""
        script = (
            f"{hidden}mount --bind {boot_id} /proc/sys/kernel/random/boot_id && "
            f"mount --bind {self.folder}/here {self.here} && "
            f'exec {sys.executable} -c "$INIT"'
        )
        self._unshare = subprocess.Popen(
            [
                *("nsenter", f"--net=/run/netns/{self.network}", "unshare", "--mount", "--pid"),
                *("--fork", "--kill-child", "--mount-proc", "sh", "-c", script),
            ],
            env={"PATH": os.environ.get("PATH", os.defpath), "INIT": INIT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
        )
        # Ready once the script has given way to the program that it ends in.
        ports.wait_until(self._is_booted, what=f"{self.name} boots")
        self.is_up = True

    def power_off(self) -> None:
        """All its processes end at once, as by a power cut."""
        for process in (self._unshare, self._sshd, self._mute):
            if process is not None and process.poll() is None:
                if process is self._unshare:
                    self.downs.append(boot_clock())
                    kill(self.init)
                process.kill()
                process.wait()
        self._unshare = self._sshd = self._mute = None
        self.is_up = False
        if self.store is not None:
            # What podman keeps on a tmpfs, which a machine loses when it goes down.
            for name in ("tmp", "run"):
                shutil.rmtree(self.store / name, ignore_errors=True)
            clear_cgroups({path.name for path in self.store.glob("graph/vfs-containers/*")})

    def start_sshd(self) -> None:
        """Start sshd, which answers soon after; nothing where it runs already."""
        if not self.is_up or self._is_running(self._sshd):
            return
        variables = f"PATH={self.folder}/bin:{os.defpath}:/usr/sbin:/sbin"
        if self.clock_library is not None:
            variables += f" LD_PRELOAD={self.clock_library} CHAOS_CLOCK={self.folder}/clock"
        (self.folder / "config").write_text(
            CONFIG.format(address=self.address, port=PORT, folder=self.folder, variables=variables)
        )
        sshd = find_program("sshd") or "sshd"
        self._sshd = self._inside(sshd, "-D", "-e", "-f", str(self.folder / "config"))

    def stop_sshd(self) -> None:
        """Kill sshd with every connection; supervisors and tasks go on."""
        ports.wait_until(self._is_sshd_gone, what=f"{self.name} has no sshd")
        self._sshd = None

    def _is_sshd_gone(self) -> bool:
        # Again and again: a program that only just starts has not got its name yet.
        for pid in self.pids("sshd"):
            kill(pid)
        return not self._is_running(self._sshd) and not self.pids("sshd")

    def hang(self) -> None:
        """From now on connections are accepted and nothing is ever said."""
        self.stop_sshd()
        if self.is_up:
            self._mute = self._inside(sys.executable, "-c", MUTE, self.address, str(PORT))

    def unhang(self) -> None:
        """The mute server goes, with the connections that it kept."""
        if self._mute is not None:
            for pid in self.pids("python"):
                if MUTE.encode() in read(pid, "cmdline"):
                    kill(pid)
            self._mute.wait()
        self._mute = None

    def change_host_key(self, *, back: bool) -> None:
        """Show another key from the next start of sshd on, or the known one again."""
        for name in ("host_key", "host_key.pub"):
            own, kept = self.folder / name, self.folder / f"{name}.kept"
            if back:
                kept.rename(own)
            else:
                own.rename(kept)
        if not back:
            make_key(self.folder / "host_key")

    def set_link(self, *, is_up: bool) -> None:
        """Plug the cable in or pull it."""
        run("ip", "link", "set", f"{self.cable}h", "up" if is_up else "down")

    def drop(self, chain: str, *, is_on: bool) -> None:
        """Lose packets of one direction: INPUT is what the node says, OUTPUT what it hears."""
        flag = "-i" if chain == "INPUT" else "-o"
        action = "-I" if is_on else "-D"
        run("iptables", "-w", action, chain, flag, f"{self.cable}h", "-j", "DROP")

    def fill_disk(self, *, is_full: bool) -> None:
        """Leave no free byte on the helper's disk, or give it back."""
        fill(self.folder / "disk" / "balloon", is_full=is_full)

    def hide_runtime(self, *, is_hidden: bool) -> None:
        """Make podman a program that cannot be run."""
        podman = find_program("podman") or "/usr/bin/podman"
        words = ("mount", "--bind", "/dev/null", podman) if is_hidden else ("umount", podman)
        # --pid as well: umount reads /proc/self, which is its own only there.
        run("nsenter", f"--target={self.init}", "--mount", "--pid", *words, check=False)

    def set_clock(self, seconds: float) -> None:
        """Move the wall clock of the node's helper."""
        set_clock(self.folder / "clock", seconds)

    def pids(self, name: str = "") -> list[int]:
        """Its processes, as this side of it numbers them; all, or those called so."""
        if not self.is_up:
            return []
        roots = [self.init, *(one.pid for one in (self._sshd, self._mute) if one is not None)]
        found = [pid for pid in descendants(roots) if not read(pid, "comm").startswith(b"nsenter")]
        return [pid for pid in found if read(pid, "comm").startswith(name.encode())]

    def _inside(self, *command: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                ["nsenter", f"--target={self.init}", "--net", "--mount", "--pid", *command],
                env={"PATH": os.defpath},
                stdin=stdin,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
            )

    def _is_booted(self) -> bool:
        if self._unshare is None or self._unshare.poll() is not None:
            raise ports.ServerDidNotStart(f"{self.name}: no namespaces")
        for pid in children(self._unshare.pid):
            if b"signal.pause" in read(pid, "cmdline"):
                self.init = pid
                return True
        return False

    @staticmethod
    def _is_running(process: subprocess.Popen[bytes] | None) -> bool:
        return process is not None and process.poll() is None


def _requests(received: bytes) -> list[bytes]:
    """The whole requests in what a helper read: the only one, or those of a channel."""
    if not received.startswith(OPENING):
        return [received]
    found = []
    begin = len(OPENING)
    while begin + HEADER.size <= len(received):
        _, _, size = HEADER.unpack_from(received, begin)
        begin += HEADER.size
        found.append(received[begin : begin + size])
        begin += size
    # The connection may have been cut within the last one.
    return found if begin == len(received) else found[:-1]
