"""Check of a text while it is edited; nothing is stored."""

from dataclasses import dataclass

from apps.vaults.contents import read_valid
from apps.vaults.text.bounds import BadText


@dataclass(frozen=True, slots=True)
class TextCheck:
    """Whether the text is valid; otherwise the problem and its place."""

    is_valid: bool
    problem: str = ""
    line: int = 0
    column: int = 0
    keys: tuple[str, ...] = ()


def vault_text_check(*, text: str, format: str) -> TextCheck:  # noqa: A002  # the column's name
    """Read the text as a vault would hold it; stars may stand for secrets."""
    try:
        found = read_valid(text, format=format)
    except BadText as error:
        return TextCheck(
            is_valid=False, problem=error.problem, line=error.line, column=error.column
        )
    return TextCheck(is_valid=True, keys=tuple(sorted(found.data)))
