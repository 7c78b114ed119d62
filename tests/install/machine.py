"""Bare Debian machines: a root file system of debootstrap, an overlay over it, and namespaces."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services import ports
from tools.packages import install_missing

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rpm-install-test"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How this machine reaches its package sources; the same way is open to the machines in it.
SHARED = (
    "/etc/resolv.conf",
    "/etc/pip.conf",
    "/etc/npmrc",
    "/etc/ssl/certs/ca-certificates.crt",
)
TRUST = dict.fromkeys(("PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"), SHARED[-1])
ENTER = """
set -e
mount -t overlay overlay -o lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work {root}
mount --rbind /dev {root}/dev
mount -t proc proc {root}/proc
mount -t tmpfs none {root}/run
exec chroot {root} /bin/sh -c 'touch /.ready; while :; do sleep 1000 & wait $!; done'
"""
# Blocks share variables, functions and the folder, as in one shell.
SESSION = """
set -eo pipefail
[ ! -f /root/.session ] || . /root/.session
{text}
{{
    declare -p | grep -v '^declare -[a-zA-Z]*r'
    declare -f
    echo "cd '$PWD'"
}} > /root/.session
"""


def debian() -> Path:
    """A bare root file system, made once and kept."""
    install_missing({"debootstrap": ("debootstrap",)})
    target = CACHE / "bookworm"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = CACHE / f"bookworm.{os.getpid()}"
        command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm"]
        subprocess.run([*command, str(fresh)], check=True)
        fresh.rename(target)
    return target


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that runs; its files lie below `root` as its own processes see them."""

    folder: Path
    pid: int
    network: int

    @property
    def upper(self) -> Path:
        """What differs from the file system below it."""
        return self.folder / "upper"

    def path(self, name: str) -> Path:
        """A file of the machine, from outside."""
        return Path(f"/proc/{self.pid}/root{name}")

    def run(self, text: str, *, is_online: bool = False) -> str:
        """What a block prints; its errors end the run.

        Args:
            is_online: reaches package sources; else it sees the other machines only.
        """
        network = [] if is_online else [f"--net=/proc/{self.network}/ns/net"]
        spaces = [f"--target={self.pid}", "--mount", "--pid", "--root", "--wdns=/", *network]
        done = subprocess.run(
            ["nsenter", *spaces, "bash", "-c", SESSION.format(text=text)],
            env={"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}
            | {"DEBIAN_FRONTEND": "noninteractive"}
            | TRUST,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        say(done.stdout)
        if done.returncode != 0:
            raise SystemExit(f"status {done.returncode} of:\n{text}")
        return done.stdout


def say(text: str) -> None:
    """What happens, at once, also through a pipe."""
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def network() -> Iterator[int]:
    """A network of loopback alone; the id of a process in it."""
    up = "ip link set lo up && exec sleep infinity"
    with _holding(["unshare", "--net", "sh", "-c", up]) as pid:
        yield pid


@contextmanager
def machine(folder: Path, *, lower: str, network: int) -> Iterator[Machine]:
    """A machine over the file systems `lower`; everything in it ends with it."""
    root = folder / "root"
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    enter = ENTER.format(lower=lower, folder=folder, root=root)
    spaces = ["--mount", "--pid", "--fork", "--kill-child"]
    with _holding(["unshare", *spaces, "sh", "-c", enter]) as pid:
        # Written from inside: before that the process still has the root of this machine.
        ports.wait_until((folder / "upper" / ".ready").exists, what="the machine", timeout_s=60)
        (first,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        made = Machine(folder, int(first), network)
        for name in SHARED:
            if Path(name).exists():
                shutil.copyfile(name, made.path(name))
        policy = made.path("/usr/sbin/policy-rc.d")
        # Packages start nothing: that is for the blocks to do.
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        yield made


@contextmanager
def _holding(command: list[str]) -> Iterator[int]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
