"""The wheel of `client/`, and environments in which nothing else of this repository is."""

import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.services.timeouts import scale_timeout

CLIENT = Path(__file__).resolve().parents[2] / "client"
MODULES = sorted((CLIENT / "rpm_client").rglob("*.py"))
# What it depends on are the packages of this environment: no network.
PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))


def run(*command: str | Path, **variables: str) -> str:
    """What the program prints; its failure is that of the test."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=scale_timeout(300),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel_build(folder: Path) -> Path:
    """The wheel, made in this folder."""
    source = folder / "client"
    # Building writes into the folder of the sources.
    for path in [*MODULES, CLIENT / "pyproject.toml", CLIENT / "README.md"]:
        copy = source / path.relative_to(CLIENT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (source / "rpm_client" / "py.typed").touch()
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"),
        *("--wheel-dir", folder, source),
    )
    return next(folder.glob("rpmctl-*.whl"))


def wheel_install(wheel: Path, folder: Path) -> Path:
    """The programs of a new virtual environment with only the wheel."""
    venv.create(folder, with_pip=False)
    programs = folder / "bin"
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet")
    run(*pip, "--no-input", "--no-deps", "--no-index", wheel)
    return programs
