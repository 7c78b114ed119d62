"""Everything that `make check` checks, in order; all of it runs, then it says what failed."""

import difflib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools import compose, hygiene, vocabulary

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SCHEMA = ROOT / "docs" / "openapi.yaml"
DOCUMENT_SCHEMA = ROOT / "docs" / "configuration.schema.json"


def main() -> int:
    failed = [title for title, check in CHECKS.items() if not check_passes(title, check)]
    if failed:
        print(f"\nmake check: failed: {', '.join(failed)}")
        return 1
    print("\nmake check: all clean")
    return 0


def check_passes(title: str, check: Callable[[], int]) -> bool:
    """Run one check under its title and say how long it took."""
    print(f"== {title}", flush=True)
    started = time.monotonic()
    status = check()
    word = "ok" if status == 0 else "FAILED"
    print(f"   {word} ({time.monotonic() - started:.1f} s)", flush=True)
    return status == 0


def tool(name: str, *arguments: str) -> Callable[[], int]:
    """A program of the virtual environment, run in the repository."""
    return lambda: subprocess.run([BIN / name, *arguments], cwd=ROOT, check=False).returncode


def migrations() -> int:
    """No model differs from its migrations."""
    return manage("makemigrations", "--check", "--dry-run").returncode


def schema() -> int:
    """The committed REST schema is what the code says."""
    made = manage("spectacular", "--validate", "--fail-on-warn", capture=True)
    if made.returncode != 0:
        print(made.stderr or made.stdout)
        return 1
    committed = SCHEMA.read_text() if SCHEMA.exists() else ""
    if made.stdout == committed:
        return 0
    lines = difflib.unified_diff(
        committed.splitlines(), made.stdout.splitlines(), "committed", "code", lineterm="", n=1
    )
    print("\n".join(list(lines)[:60]))
    print("docs/openapi.yaml differs from the code: run `make schema` and commit the result.")
    return 1


def document_schema() -> int:
    """The committed schema of the configuration document is what the code says."""
    command = [sys.executable, "-m", "apps.policies.document.json_schema"]
    made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    if made.stdout == DOCUMENT_SCHEMA.read_text():
        return 0
    print(f"{DOCUMENT_SCHEMA.name} differs from the code: run `make schema`, commit the result.")
    return 1


def manage(*arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py apart from any installation, with data of its own."""
    with tempfile.TemporaryDirectory(prefix="rpm-check-") as home:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("RPM_")
        }
        environment.pop("DATABASE_URL", None)
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=environment | {"RPM_HOME": home, "RPM_LOG_LEVEL": "ERROR"},
            check=False,
            capture_output=capture,
            text=True,
        )


CHECKS: dict[str, Callable[[], int]] = {
    "ruff check": tool("ruff", "check", "--quiet", "."),
    "ruff format": tool("ruff", "format", "--check", "--quiet", "."),
    "mypy": tool("mypy"),
    "djlint": tool("djlint", "templates", "--lint", "--quiet"),
    "import contracts": tool("lint-imports", "--no-logo"),
    "migrations": migrations,
    "REST schema": schema,
    "configuration schema": document_schema,
    "docker/compose.yaml": compose.main,
    "repository": hygiene.main,
    "vocabulary": lambda: vocabulary.main([]),
}

if __name__ == "__main__":
    sys.exit(main())
