"""Resolves the dependencies again: pyproject.toml to requirements/*.txt, package.json to its lock.

Every package is locked with hashes and without the address it came from, so that no private mirror
ends up in the repository.
"""

import os
import subprocess
import sys
from pathlib import Path

from tools.assets import find_node

ROOT = Path(__file__).resolve().parent.parent
UV = str(Path(sys.executable).parent / "uv")
# Universal: one lock for every Python and platform that is supported.
COMPILE = (
    *("pip", "compile", "--universal", "--python-version=3.11", "--generate-hashes"),
    *("--no-header", "--no-emit-index-url", "--no-emit-find-links", "--quiet"),
)
SETS: dict[str, tuple[str, ...]] = {
    "run": ("pyproject.toml",),
    "dev": ("pyproject.toml", "--group=dev", "--constraints=requirements/run.txt"),
    "node": ("--group=node",),
}


def main(arguments: list[str]) -> int:
    upgrade = ["--upgrade"] if "--upgrade" in arguments else []
    for name, sources in SETS.items():
        print(f"Locking requirements/{name}.txt ...", flush=True)
        command = [UV, *COMPILE, *upgrade, *sources, f"--output-file=requirements/{name}.txt"]
        subprocess.run(command, cwd=ROOT, check=True)
    print("Locking package-lock.json ...", flush=True)
    node, npm = find_node()
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    options = ("--package-lock-only", "--omit-lockfile-registry-resolved", "--no-audit")
    subprocess.run(
        [*npm, "update" if upgrade else "install", *options, "--no-fund"],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        check=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
