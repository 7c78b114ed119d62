"""The distribution in `client/`: it installs alone, and runs with the Python of its users."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.core.terminal import plain
from rpm_client import terminal
from tests.client.wheels import CLIENT, MODULES, PACKAGES, run, wheel_build, wheel_install

SHIPPED = {"httpx", "rich", "typer", "websockets", "yaml"}
OLDEST = (3, 9)


def test_the_wheel_runs_in_an_environment_without_the_server(tmp_path: Path) -> None:
    programs = wheel_install(wheel_build(tmp_path), tmp_path / "venv")

    helped = run(programs / "rpmctl", "--help", PYTHONPATH=PACKAGES)
    home = run(programs / "python", "-c", "import rpm_client; print(rpm_client.__file__)")

    assert "enqueue" in helped
    assert str(tmp_path) in home
    assert (Path(home.strip()).parent / "py.typed").exists()


def test_it_imports_what_it_depends_on_and_nothing_else() -> None:
    found: set[str] = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    declared = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert found - SHIPPED <= sys.stdlib_module_names | {"rpm_client"}
    assert len(declared) == len(SHIPPED)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_oldest_python_reads_every_module(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=OLDEST)

    is_lazy = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body
    )
    if "cli" in path.parts:
        # Typer evaluates annotations, which a later Python alone can do with `|`.
        assert not is_lazy
    unions = [node.lineno for annotation in annotations(tree) for node in unions_in(annotation)]
    assert is_lazy or unions == []


def annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef) and node.returns:
            yield node.returns


def unions_in(annotation: ast.expr) -> Iterator[ast.BinOp]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield node


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "a\tb\r\nc",
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07after",
        "\x9b1mhigh",
        "\x1bP q\x1b\\rest",
        "bell\x07 and \x00 and \x7f and ü",
        "\x1b[",
    ],
)
def test_control_sequences_are_left_out_as_the_server_does(text: str) -> None:
    assert terminal.plain(text) == plain(text)


def test_a_command_starts_without_what_only_some_commands_need() -> None:
    words = (
        "import sys\n"
        "from rpm_client.cli.app import app\n"
        "try:\n"
        "    app(['policy', 'set'], standalone_mode=False)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n"
        "print([name for name in ('asyncio', 'httpx', 'rich', 'yaml') if name in sys.modules])\n"
    )

    output = run(sys.executable, "-c", words, PYTHONPATH=str(CLIENT))

    assert output.splitlines() == ["MissingParameter", "[]"]
