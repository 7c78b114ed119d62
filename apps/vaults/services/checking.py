"""Judging a text as it is typed; nothing is stored."""

from dataclasses import dataclass

from apps.vaults.contents import read_checked
from apps.vaults.text.shapes import BadText


@dataclass(frozen=True, slots=True)
class CheckedText:
    """Whether the text would do; the problem and its place where it would not."""

    is_valid: bool
    problem: str = ""
    line: int = 0
    column: int = 0
    keys: tuple[str, ...] = ()


def vault_text_check(*, text: str, format: str) -> CheckedText:  # noqa: A002  # the column's name
    """Read the text as a vault would hold it; stars may stand for secrets."""
    try:
        found = read_checked(text, format=format)
    except BadText as error:
        return CheckedText(
            is_valid=False, problem=error.problem, line=error.line, column=error.column
        )
    return CheckedText(is_valid=True, keys=tuple(sorted(found.data)))
