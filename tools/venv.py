"""Makes the virtual environment and keeps it at what the lock files say.

    python tools/venv.py run     what RPM needs, and Node.js where this machine has none
    python tools/venv.py dev     this and what tests and checks need

Runs with the machine's own Python (3.11 or 3.12) and the standard library only. Does nothing when
nothing changed, so that every `make` target may begin with it.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements"
SUPPORTED = ((3, 11), (3, 12))
NODE_AT_LEAST = 20
NO_VENV_MODULE = """\
This Python ({python}) cannot make virtual environments with pip inside.
On Debian and Ubuntu that part is a package of its own; install it and run `make` again:

    sudo apt install python3-venv
"""


def main(arguments: list[str]) -> int:
    wanted = arguments[0] if arguments else "run"
    if wanted not in {"run", "dev"}:
        print(f"{wanted!r} is not a set of requirements; known: run, dev", file=sys.stderr)
        return 2
    if sys.version_info[:2] not in SUPPORTED:
        print(f"RPM needs Python 3.11 or 3.12; this is {sys.version.split()[0]}.", file=sys.stderr)
        return 2
    with one_at_a_time():
        make_venv()
        install("dev" if wanted == "dev" else "run")
        install_commands()
        if not has_node():
            install("node")
    return 0


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep a second `make` in this folder from installing into the same environment."""
    with (ROOT / ".make.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_venv() -> None:
    """Create `.venv` unless a working one of a supported Python is there.

    Raises:
        SystemExit: this Python cannot make one; the message says what to install.
    """
    if PYTHON.exists() and _version_of(PYTHON) in SUPPORTED:
        return
    print(f"Making .venv with Python {sys.version.split()[0]} ...", flush=True)
    if _run_quietly(sys.executable, "-m", "venv", "--clear", str(VENV)):
        return
    if _can_install_packages():
        print("Installing python3-venv with apt ...", flush=True)
        _run_quietly("apt-get", "-q", "update")
        _run_quietly("apt-get", "-q", "install", "-y", "--no-install-recommends", "python3-venv")
        if _run_quietly(sys.executable, "-m", "venv", "--clear", str(VENV)):
            return
    if _has_pip() and _run_quietly(
        sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)
    ):
        return
    shutil.rmtree(VENV, ignore_errors=True)
    raise SystemExit(NO_VENV_MODULE.format(python=sys.executable))


def install(name: str) -> None:
    """Bring the environment to `requirements/<name>.txt`, with pip checking every hash."""
    lock = REQUIREMENTS / f"{name}.txt"
    stamp = VENV / f".installed-{name}"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    count = len(re.findall(r"^[\w.\[\]-]+==", lock.read_text(), flags=re.MULTILINE))
    print(f"Installing {count} packages of requirements/{name}.txt ...", flush=True)
    started = time.monotonic()
    options = ("--require-hashes", "--no-deps", "--no-input", "--disable-pip-version-check")
    done = subprocess.run(
        [*pip(), "install", *options, "--progress-bar", "on", "-r", str(lock)], check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"pip could not install requirements/{name}.txt; its message is above.")
    stamp.write_text(wanted)
    print(f"Installed in {time.monotonic() - started:.0f} s.", flush=True)


def install_commands() -> None:
    """Put `rpmctl` into the environment; it runs the code of this folder."""
    stamp = VENV / ".installed-commands"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    options = ("--no-deps", "--no-build-isolation", "--no-input", "--disable-pip-version-check")
    if not _run_quietly(*pip(), "install", *options, "--editable", str(ROOT)):
        raise SystemExit("pip could not install the command rpmctl; its message is above.")
    stamp.write_text(wanted)


def pip() -> list[str]:
    """The command for pip: the environment's own, else this Python's acting on it."""
    if (VENV / "bin" / "pip").exists():
        return [str(PYTHON), "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", str(PYTHON)]


def has_node() -> bool:
    """Whether Node.js, new enough, and npm are on the PATH."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)\.", answer.stdout)
    return found is not None and int(found[1]) >= NODE_AT_LEAST


def _version_of(python: Path) -> tuple[int, int] | None:
    code = "import sys; print(*sys.version_info[:2])"
    answer = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        return None
    major, minor = answer.stdout.split()
    return int(major), int(minor)


def _has_pip() -> bool:
    return _run_quietly(sys.executable, "-m", "pip", "--version")


def _can_install_packages() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _run_quietly(*command: str) -> bool:
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
