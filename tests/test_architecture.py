"""Rules of the code's shape that no import contract can state."""

import ast
import builtins
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest
import requests
from django import db
from django.core import exceptions as django_exceptions
from rest_framework import exceptions as rest_exceptions

ROOT = Path(__file__).resolve().parent.parent
ENGINE = ROOT / "apps" / "allocation" / "engine"
# What the pure engine may use besides itself: no clock, no randomness, no environment, no I/O.
PURE = frozenset(
    {
        "__future__",
        "apps",
        "bisect",
        "collections",
        "dataclasses",
        "enum",
        "fractions",
        "functools",
        "heapq",
        "itertools",
        "math",
        "operator",
        "typing",
    }
)
# What is copied onto nodes: any Python from 3.9 on runs it, with nothing installed.
NODE = ROOT / "apps" / "execution" / "node"
NODE_MODULES = sorted(NODE.rglob("*.py"))
NODE_EXTRAS = frozenset({"pynvml"})
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__", "hash", "id"})
# Apps outside the dashboard draw no pages (STYLE: templates live with the pages).
APPS = sorted(path for path in (ROOT / "apps").iterdir() if (path / "__init__.py").exists())
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def engine_modules() -> list[Path]:
    return sorted(ENGINE.rglob("*.py"))


def imported_modules(tree: ast.AST) -> set[str]:
    """Full names of every module that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def is_pure(module: str) -> bool:
    first = module.split(".", maxsplit=1)[0]
    return first in PURE and (first != "apps" or module.startswith("apps.allocation.engine"))


def test_the_engine_has_modules_to_look_at() -> None:
    assert {"snapshot.py", "plan.py"} <= {path.name for path in engine_modules()}


@pytest.mark.parametrize("path", engine_modules(), ids=lambda path: path.name)
def test_the_engine_imports_itself_and_plain_python_only(path: Path) -> None:
    found = imported_modules(ast.parse(path.read_text()))

    assert [name for name in sorted(found) if not is_pure(name)] == []


@pytest.mark.parametrize("path", engine_modules(), ids=lambda path: path.name)
def test_the_engine_calls_nothing_that_depends_on_the_process(path: Path) -> None:
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]

    assert [name for name in calls if name in IMPURE_CALLS] == []


@pytest.mark.parametrize("path", NODE_MODULES, ids=lambda path: path.name)
def test_what_runs_on_nodes_is_python_3_9_without_packages(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    found = {name.split(".", maxsplit=1)[0] for name in imported_modules(tree)} - {"apps"}

    assert found <= sys.stdlib_module_names | NODE_EXTRAS


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_an_app_is_wired_by_name_and_its_package_stays_empty(app: Path) -> None:
    source = ast.parse((app / "apps.py").read_text())
    fields = {
        target.id: ast.literal_eval(node.value)
        for node in ast.walk(source)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    assert (app / "__init__.py").read_text() == ""
    assert fields["label"] == app.name


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_only_the_dashboard_has_templates(app: Path) -> None:
    assert app.name == "dashboard" or not (app / "templates").exists()


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_migrations_import_nothing_of_the_apps_but_the_fields_of_core(app: Path) -> None:
    for path in (app / "migrations").glob("[0-9]*.py"):
        found = imported_modules(ast.parse(path.read_text()))

        ours = [name for name in sorted(found) if name.startswith(("apps", "rpm"))]
        # Django writes the classes of custom fields, and their defaults, into migrations.
        assert [name for name in ours if name not in {"apps.core.fields", "apps.core.ids"}] == []


def test_the_exceptions_of_docstrings_exist() -> None:
    folders = [ROOT / "apps", ROOT / "lab", ROOT / "rpm"]
    trees = {
        path: ast.parse(path.read_text())
        for path in sorted(chain.from_iterable(folder.rglob("*.py") for folder in folders))
        if "migrations" not in path.parts
    }
    known = exceptions_of(trees.values())

    assert [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees.items()
        for name in names_under_raises(tree)
        if name not in known | imported_names(tree)
    ] == []


def exceptions_of(trees: Iterable[ast.Module]) -> set[str]:
    """Exceptions of Python, Django, its REST framework and requests, and what is based on them."""
    known = {
        name
        for module in (builtins, db, django_exceptions, requests, rest_exceptions)
        for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, BaseException)
    }
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for node in chain.from_iterable(map(definitions, trees))
        if isinstance(node, ast.ClassDef)
    }
    while more := {name for name, found in bases.items() if found & known} - known:
        known |= more
    return known


def imported_names(tree: ast.Module) -> set[str]:
    """What a module has from other packages."""
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("apps")
        for alias in node.names
    }


def definitions(tree: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """A module or class with the classes and functions in it, without those inside functions."""
    yield tree
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from definitions(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def names_under_raises(tree: ast.Module) -> Iterator[str]:
    for node in definitions(tree):
        section = (ast.get_docstring(node) or "").partition("\nRaises:\n")[2]
        for line in section.partition("\n\n")[0].splitlines():
            if found := re.match(r"    ([A-Z][\w.]*(, [A-Z][\w.]*)*):", line):
                yield from found[1].split(", ")
