"""What must never be committed: download addresses, paths of one machine, huge or endless files.

Checks every file that git tracks or would add.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 300_000
# The schemas that `make schema` writes grow with REST, and nobody edits them.
MOST_SCHEMA_BYTES = 1_000_000
SCHEMAS = frozenset({"docs/openapi.yaml", "docs/configuration.schema.json"})
MOST_LINES = 400
# Of the lines of templates; ruff knows those of Python.
MOST_COLUMNS = 120
SHORT = 2
# Names of files in which a download address would end up by itself.
LOCKS = re.compile(r"(\.lock|lock\.json|\.toml|requirements/.*\.txt|\.npmrc)$")
ADDRESS = re.compile(
    r'"resolved"\s*:\s*"http|^\s*(--)?(extra-)?index-url|^\s*--find-links|registry\s*=\s*"?http'
    r'|(url|source)\s*=\s*.*https?://[^ "]+/(simple|packages)',
    re.MULTILINE,
)
WRITTEN_BY_TOOLS = re.compile(r"/migrations/")


def main() -> int:
    problems = [problem for path in committed_files() for problem in problems_of(path)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def committed_files() -> list[Path]:
    """Files that are tracked, and new ones that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and _is_file(ROOT / name)]


def problems_of(path: Path, *, root: Path = ROOT, home: Path | None = None) -> Iterator[str]:
    """Sentences about what this file must not hold; none when it is fine."""
    name = path.relative_to(root).as_posix()
    content = path.read_bytes()
    most = MOST_SCHEMA_BYTES if name in SCHEMAS else MOST_BYTES
    if len(content) > most:
        yield f"{name}: {len(content)} bytes; a file holds at most {most}."
    if b"\0" in content[:8000]:
        return
    text = content.decode(errors="replace")
    if LOCKS.search(name) and (found := ADDRESS.search(text)):
        yield f"{name}:{_line(text, found.start())}: a download address."
    for prefix in (f"{root}/", f"{home or Path.home()}/"):
        # The short ones, / and /root/, are on every machine.
        if prefix.count("/") > SHORT and prefix in text:
            yield f"{name}:{_line(text, text.index(prefix))}: a path of this machine."
    lines = text.count("\n")
    if name.endswith(".py") and lines > MOST_LINES and not WRITTEN_BY_TOOLS.search(name):
        yield f"{name}: {lines} lines; a module holds at most {MOST_LINES}."
    if name.endswith(".html"):
        yield from _long_lines(name, text)


def _long_lines(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MOST_COLUMNS:
            yield f"{name}:{number}: {len(line)} columns; a line has at most {MOST_COLUMNS}."


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


if __name__ == "__main__":
    sys.exit(main())
