"""Errors of a configuration file name the place in it: the path, and the line of YAML."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from apps.core.errors import BadInput, RpmError
from apps.policies.document import SourceText


@contextmanager
def at(path: str) -> Iterator[None]:
    """Errors within are about this path of the document; their fields are below it."""
    try:
        yield
    except RpmError as error:
        below = {f"{path}.{name}": text for name, text in error.fields.items()}
        error.fields = below or {path: error.detail.rstrip(".")}
        raise


@contextmanager
def in_file(source: SourceText, place: Callable[[str], str]) -> Iterator[None]:
    """Errors within name paths of the document; users get those of their file, with lines.

    Args:
        place: from a path of the document to the one of the file.
    """
    try:
        yield
    except RpmError as error:
        # A line follows each, and a sentence of Django has a full stop.
        fields = {place(path): text.rstrip(".") for path, text in error.fields.items()}
        error.fields = _with_lines(source, fields)
        error.detail = _detail(error, fields)
        raise


def _detail(error: RpmError, fields: Mapping[str, str]) -> str:
    """Each problem once, with its place: `fields` are those of the error without lines."""
    problems = {path: f"{path} {text}" for path, text in error.fields.items()}
    if isinstance(error, BadInput) and problems:
        return f"{'; '.join(problems.values())}."
    detail = error.detail.rstrip(".")
    for path, said in fields.items():
        if said in detail:
            detail = detail.replace(said, problems.pop(path), 1)
    rest = "; ".join(problems.values())
    return f"{detail}. {rest}." if rest else f"{detail}."


def _with_lines(source: SourceText, fields: Mapping[str, str]) -> dict[str, str]:
    lines = source.lines_of(fields)
    return {
        path: f"{text} (line {lines[path]})" if lines[path] else text
        for path, text in fields.items()
    }
