"""Operating system packages that the tests use; installs what is missing, as root with apt.

No service is started: the tests start private ones by themselves. Standard library only, because
it runs before anything is installed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

POSTGRES_DIRECTORIES = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt/postgresql")
# Package of Debian and Ubuntu -> programs that show it is there (the first one found is enough).
PACKAGES: dict[str, tuple[str, ...]] = {
    "build-essential": ("cc",),
    "busybox-static": ("busybox",),
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    # The same without windows: where a release has none, the one above does.
    "chromium-headless-shell": ("chromium-headless-shell",),
    "iproute2": ("ip",),
    "iptables": ("iptables",),
    "openssh-client": ("ssh-keygen",),
    "openssh-server": ("sshd",),
    "podman": ("podman",),
    "postgresql": ("initdb",),
    "redis-server": ("redis-server",),
    "runc": ("runc",),
}
SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
# A policy that exits with 101 forbids every package script to start a service.
POLICY = Path("/usr/sbin/policy-rc.d")
LOCK = Path("/run/lock/rpm-test-packages.lock")


def find_program(name: str) -> str | None:
    """Path of a program, also from folders outside an ordinary user's PATH."""
    if name in {"initdb", "pg_ctl", "postgres", "psql"}:
        return find_postgres_program(name)
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *SYSTEM_PATHS))
    return shutil.which(name, path=path)


def find_postgres_program(name: str) -> str | None:
    """Path of a PostgreSQL program; the newest version of those that Debian keeps side by side."""
    for directory in POSTGRES_DIRECTORIES:
        versions = [path for path in Path(directory).glob("*/bin") if (path / name).exists()]
        if versions:
            return str(max(versions, key=_version) / name)
    return shutil.which(name)


def missing_packages(wanted: Mapping[str, tuple[str, ...]] = PACKAGES) -> list[str]:
    """Packages of which no program is found."""
    return [
        package
        for package, programs in wanted.items()
        if not any(find_program(program) for program in programs)
    ]


def can_install() -> bool:
    """Whether this machine lets the caller install packages: root, with apt."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install_missing(wanted: Mapping[str, tuple[str, ...]] = PACKAGES) -> list[str]:
    """Install what is missing where that is possible.

    Args:
        wanted: packages with the programs that show they are there.

    Returns:
        The packages that are still missing; the suites that need them are skipped.
    """
    if not missing_packages(wanted) or not can_install():
        return missing_packages(wanted)
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        # Two test runs may start at once on one machine.
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = missing_packages(wanted)
        if missing:
            print(f"Installing with apt: {' '.join(missing)}", flush=True)
            with services_stay_off():
                _apt_install(missing)
    return missing_packages(wanted)


@contextmanager
def services_stay_off() -> Iterator[None]:
    """Keep package scripts from starting services, unless the machine has a policy of its own."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def _apt_install(packages: list[str]) -> None:
    _apt("update")
    if not _apt("install", *packages):
        # One that this release does not have must not keep the others away.
        for package in packages:
            _apt("install", package)


def _apt(action: str, *packages: str) -> bool:
    options = ["-q", "-o", "DPkg::Lock::Timeout=600"]
    choices = ["-y", "--no-install-recommends", *packages] if packages else []
    done = subprocess.run(
        ["apt-get", *options, action, *choices],
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        print(f"apt-get {action} {' '.join(packages)} failed:\n{done.stderr}", file=sys.stderr)
    return done.returncode == 0


def _version(directory: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in directory.parent.name.split(".") if part.isdigit())


def main() -> int:
    missing = install_missing()
    if missing:
        print(f"Not installed: {', '.join(missing)}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
