"""Checks that names and texts do not use banned words, and names the word to use.

Names that code defines and the words of comments, strings, templates, scripts and documents are
checked. `docs/concepts.md` has the glossary.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools.hygiene import ROOT, committed_files

# What is banned, as a pattern over whole words, and what to say.
TERMS = {
    "prey": "candidates, or victims once they are chosen",
    "flocks?": "candidate group",
    "sittings?": "assignment, or placement once it is final",
    "seats?": "member, or its placement",
    "rooms?": "capacity, free capacity, or space on a disk",
    "standings?": "tier",
    "lent": "borrowed",
    "doorbells?|hang up|hangs up": "notification",
    "strangers?": "another tenant's, or who has no permission",
    "(?<!-)walls?(?! clock)": "tenant isolation",
    "narrowed|narrowing|narrows": "restricted, restriction",
    "told": "reported, said, answered; payload or response as a noun",
    "anew": "again",
    "beside": "next to, or compared with",
    "mend(s|ed|ing)?": "fix",
    "happenings|time-lines?": "timeline",
    "hot way|plain way|way in|ways in": "fast path, standard path, permission source",
    r"tak(e|es|en|ing) (\w+ )?back": "reclaim",
    r"tak(e|es|en|ing) (\w+ )?away": "remove",
    "holds up|hold up": "is used by, blocks",
    "oneself": "yourself, your account",
    "harmless": "sanitized, or say what cannot happen",
}
# Where the reader needs a role; tests may use them.
PEOPLE = {"somebody|someone|whoever": "the owner, member, user, administrator, or what it is"}
# Rights to preempt, and those of processes, are in other folders.
PERMISSIONS = {"rights": "permissions"}
NO_RIGHTS = re.compile(
    r"(apps|tests)/(access|accounts|configuration|dashboard|nodes|tasks|vaults)/|(static|templates)/"
)
NAMES = re.compile(rf"({'|'.join(TERMS)}|fitness|zygote)$")
# The clock on the wall, in `wall_s`, `WallSeconds` and `wall_clock`.
WALL_CLOCK = re.compile(r"(?i)wall_?(?=s$|s_|seconds|clock)")
# Modules are named by nouns.
NOUNS = frozenset({"keyring", "throttling"})
PRODUCT = ("apps/", "client/", "lab/", "rpm/", "tools/")
# Private, or named by what Django looks for.
MANY = re.compile(r"^_|^Command$|(Form|Serializer)$")
CAMEL_CASE = re.compile(r"[A-Z]\w*[a-z]")
PROSE = {".css", ".html", ".js", ".md", ".mjs", ".toml", ".yaml", ".yml"}
# Written by tools, or this list itself and its tests.
OTHERS = re.compile(
    r"/migrations/|^docs/openapi\.yaml$|package-lock|^tools/vocabulary\.py$|^tests/tools/"
    r"test_vocabulary\.py$"
)


def main(arguments: list[str]) -> int:
    """Print what is wrong in the given files and folders, or in all that are committed."""
    wanted = tuple(arguments) or ""
    names = {path.relative_to(ROOT).as_posix(): path for path in committed_files()}
    files = {name: path for name, path in names.items() if not OTHERS.search(name)}
    problems = [
        problem
        for name, path in files.items()
        if name.startswith(wanted)
        for problem in problems_of(name, path)
    ]
    problems += classes_used_twice(files)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


def problems_of(name: str, path: Path) -> Iterator[str]:
    """Sentences about the words of one file; none when it is fine."""
    words = {**TERMS, **({} if name.startswith("tests/") else PEOPLE)}
    words |= PERMISSIONS if NO_RIGHTS.match(name) else {}
    if path.suffix in PROSE:
        yield from _of_text(name, 1, path.read_text(encoding="utf-8"), words)
    elif path.suffix == ".py":
        source = path.read_text(encoding="utf-8")
        yield from _of_module(name, path.stem)
        yield from _of_names(name, source)
        for line, text in _texts(source):
            yield from _of_text(name, line, text, words)


def classes_used_twice(files: dict[str, Path]) -> Iterator[str]:
    """Public classes of the product with one name, except forms and serializers.

    And type aliases with the name of a class of their app.
    """
    places, aliases = _classes_and_aliases(files)
    for found, used in places.items():
        if len(used) > 1:
            yield f"{used[1]}: the class {found} is another one in {used[0]}: rename one of them."
    for alias, name in aliases:
        for other in places.get(alias, ()):
            if _app(name) == _app(other):
                yield f"{name}: the alias {alias} is a class in {other}: rename one of them."


def _classes_and_aliases(
    files: dict[str, Path],
) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """By public class, the files that define it; public type aliases, each with its file."""
    places: dict[str, list[str]] = {}
    aliases: list[tuple[str, str]] = []
    for name, path in files.items():
        if name.startswith(PRODUCT) and name.endswith(".py"):
            nodes = ast.parse(path.read_text(encoding="utf-8")).body
            for found in filter(None, map(_class, nodes)):
                places.setdefault(found, []).append(name)
            aliases += [(alias, name) for alias in filter(None, map(_alias, nodes))]
    return places, aliases


def _app(name: str) -> list[str]:
    return name.split("/")[:2]


def _class(node: ast.stmt) -> str:
    """The public class that a statement defines, or empty."""
    return node.name if isinstance(node, ast.ClassDef) and not MANY.search(node.name) else ""


def _alias(node: ast.stmt) -> str:
    """The public name in CamelCase that a statement assigns, or empty."""
    match node:
        case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)):
            return found if CAMEL_CASE.match(found) else ""
    return ""


def _of_module(name: str, stem: str) -> Iterator[str]:
    last = stem.rpartition("_")[2]
    if last.endswith("ing") and last not in NOUNS:
        yield f"{name}: a module is named by a noun, not `{stem}`."
    for part in _banned_parts(stem):
        yield f"{name}: the module {stem}: say {_instead(part, TERMS)}."


def _of_names(name: str, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        found = _defined(node)
        for part in _banned_parts(found):
            line = getattr(node, "lineno", 1)
            yield f"{name}:{line}: the name {found}: say {_instead(part, TERMS)}."


def _banned_parts(name: str) -> list[str]:
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", WALL_CLOCK.sub("", name))
    return [part.lower() for part in parts if NAMES.match(part.lower())]


def _defined(node: ast.AST) -> str:
    """The name that a node defines; empty where it defines none."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    return ""


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """Comments and strings, each with the line where it begins."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def _of_text(name: str, first: int, text: str, words: dict[str, str]) -> Iterator[str]:
    for found in re.finditer(rf"(?i)\b({'|'.join(words)})\b", text):
        line = first + text.count("\n", 0, found.start())
        yield f"{name}:{line}: {found.group()!r}: say {_instead(found.group().lower(), words)}."


def _instead(found: str, words: dict[str, str]) -> str:
    for pattern, say in words.items():
        if re.fullmatch(pattern, found):
            return say
    return "what it is"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
