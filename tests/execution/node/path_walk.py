"""Finds where code of the helper uses a file by anything but an open descriptor."""

import ast
from collections.abc import Iterator

# Use descriptors, processes or mere text; everything else of these modules takes a path, or runs a
# program that may.
SAFE = {
    "os": {
        "close", "devnull", "dup2", "environ", "_exit", "fchmod", "fchown", "fork", "fstat",
        "fsync", "ftruncate", "getegid", "geteuid", "getgroups", "getpid", "isatty", "kill",
        "killpg", "lseek", "memfd_create", "openpty", "path", "pidfd_open", "pipe",
        "posix_fallocate", "pread", "pwrite", "read", "sched_getaffinity", "set_blocking",
        "setegid", "seteuid", "setgroups", "setpriority", "setsid", "strerror", "umask",
        "waitpid", "write",
        "path.abspath", "path.basename", "path.dirname", "path.expanduser", "path.isabs",
        "path.join", "path.split",
    },
    "shutil": {"which"},
    "subprocess": {"CompletedProcess", "SubprocessError", "TimeoutExpired"},
    "sys": {"stdin.buffer.read", "stdout.buffer.flush", "stdout.buffer.write", "stdout.write"}
    | {"argv", "path", "stdin", "stdout", "stdin.buffer", "stdout.buffer", "version_info"},
    "files": set(),
}  # fmt: skip
# Modules of which nothing takes a path.
NEUTRAL = {
    "__future__", "base64", "contextlib", "errno", "fcntl", "functools", "hashlib", "json",
    "platform", "re", "secrets", "select", "signal", "stat", "struct", "termios", "time",
    "traceback", "typing",
}  # fmt: skip
# Reach any file, or any module.
BUILTINS = {"__builtins__", "__import__", "compile", "eval", "exec", "open"}
OURS = "apps.execution.node"
MODULE = "<module>"


def paths_used(source: str) -> Iterator[tuple[str, str]]:
    """Each outermost function or class that uses files by a path, or could, and what it says."""
    for top in ast.parse(source).body:
        for scope, tree in _scopes(top):
            owned = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            notes = _annotations(tree)
            for node in ast.walk(tree):
                if id(node) not in notes and (use := _use(node, is_owned=id(node) in owned)):
                    yield scope, use


def _scopes(top: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """Functions by their name, methods too; what else is in a class goes by the name of that."""
    if isinstance(top, ast.ClassDef):
        for part in [*top.body, *top.decorator_list, *top.bases, *top.keywords]:
            yield _name_of(part, otherwise=top.name), part
    else:
        yield _name_of(top, otherwise=MODULE), top


def _name_of(part: ast.AST, *, otherwise: str) -> str:
    return part.name if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) else otherwise


def _annotations(tree: ast.AST) -> set[int]:
    """What stands in a type."""
    types = [
        getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns")
    ]
    return {id(node) for one in types if isinstance(one, ast.AST) for node in ast.walk(one)}


def _use(node: ast.AST, *, is_owned: bool) -> str:
    """What in it may use a path; empty when nothing does."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "" if all(_is_safe(node, one) for one in node.names) else ast.unparse(node)
    if isinstance(node, ast.Name):
        # A module by itself can be asked for any of its names.
        is_module = node.id in SAFE and not is_owned
        return node.id if is_module or node.id in BUILTINS else ""
    if not isinstance(node, ast.Attribute):
        return ""
    module, _, name = ast.unparse(node).partition(".")
    # Of another module that has it, such as `contextlib.os`.
    is_borrowed = node.attr in SAFE
    if not name.replace(".", "").isidentifier():
        # Of what a call returned, which is looked at by itself.
        return ""
    is_constant = name.isupper() or name.startswith("environ.")
    is_path = module in SAFE and name not in SAFE[module] and not is_constant
    return ast.unparse(node) if is_path or is_borrowed else ""


def _is_safe(node: ast.Import | ast.ImportFrom, one: ast.alias) -> bool:
    if isinstance(node, ast.Import):
        is_known = one.name in NEUTRAL or one.name in SAFE
        return is_known and one.asname in (None, one.name)
    if node.module in NEUTRAL:
        return True
    is_files = (node.module, one.name, one.asname) == (OURS, "files", None)
    is_ours = str(node.module).startswith(OURS) and node.module != OURS + ".files"
    return is_files or (is_ours and one.name not in SAFE)
