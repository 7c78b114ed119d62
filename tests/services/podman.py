"""podman with a store of its own, and a tiny image made of busybox."""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.requirements import need
from tests.services.timeouts import scale_timeout
from tools.packages import find_program

IMAGE = "localhost/rpm-test:1"
APPLETS = (
    "cat", "cut", "date", "echo", "env", "false", "head", "id", "kill", "ls", "mount", "nc", "ps",
    "sh", "sleep", "sort", "stty", "test", "touch", "true", "tr", "wc",
)  # fmt: skip
# crun needs cgroups that not every machine gives; runc with cgroupfs works on all of them. No
# network: a bridge would stay behind on the machine.
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "none"
lock_type = "file"
tmp_dir = "{folder}/tmp"
volume_path = "{folder}/volumes"
"""
STORAGE_CONF = """\
[storage]
driver = "vfs"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""


@dataclass(frozen=True, slots=True)
class PodmanStore:
    """A private podman."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead podman here; a node gets them when its helper is installed."""
        return {
            "CONTAINERS_CONF": f"{self.folder}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{self.folder}/storage.conf",
        }

    @property
    def image(self) -> str:
        """The busybox image."""
        return IMAGE

    def run(self, *arguments: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run podman."""
        return subprocess.run(
            [find_program("podman") or "podman", *arguments],
            env=os.environ | self.environment,
            input=content,
            capture_output=True,
            check=False,
            timeout=scale_timeout(120),
        )

    def names(self) -> set[str]:
        """Names of all containers, ended ones too."""
        listed = self.run("ps", "--all", "--format={{.Names}}")
        return set(listed.stdout.decode().split())


@contextmanager
def podman_store() -> Iterator[PodmanStore]:
    """A store with the image, removed afterwards with all its containers."""
    # Short: podman makes sockets below it, whose paths hold at most 108 bytes.
    store = PodmanStore(Path(tempfile.mkdtemp(prefix="rpm-test-pod-")))
    try:
        for name, content in (("containers", CONTAINERS_CONF), ("storage", STORAGE_CONF)):
            (store.folder / f"{name}.conf").write_text(content.format(folder=store.folder))
        made = store.run("import", "-", IMAGE, content=root_of_image())
        if made.returncode != 0:
            need("podman", because=_last_line(made.stderr))
        tried = store.run("run", "--rm", "--", IMAGE, "true")
        if tried.returncode != 0:
            need("podman", because=_last_line(tried.stderr))
        yield store
    finally:
        store.run("rm", "--force", "--all", "--time=0")
        store.run("system", "reset", "--force")
        shutil.rmtree(store.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def podman() -> Iterator[PodmanStore]:
    """One private podman for the session."""
    need("podman")
    need("busybox")
    with podman_store() as store:
        yield store


def root_of_image() -> bytes:
    """A root file system with busybox and nothing else, as a tar archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as root:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            root.addfile(folder)
        root.add(find_program("busybox") or "busybox", arcname="bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            root.addfile(link)
    return archive.getvalue()


def _last_line(words: bytes) -> str:
    lines = words.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it fails without a word"
