"""The shell blocks of docs/installing.md: what a reader copies is what the tests run."""

import re
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "installing.md"
FENCE = re.compile(
    r"^## (?P<heading>[^\n]+)$|^<!-- machine: (?P<machine>\w+) -->$"
    r"|^```sh\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One block, the heading it stands under, and the machine on which it is run."""

    heading: str
    machine: str
    text: str


def blocks(document: Path = DOCUMENT) -> list[Block]:
    """All of them, in the order of the document."""
    heading, machine, found = "", "rpm", []
    for part in FENCE.finditer(document.read_text(encoding="utf-8")):
        heading = part["heading"] or heading
        machine = part["machine"] or machine
        if part["text"]:
            found.append(Block(heading, machine, part["text"]))
            machine = "rpm"
    return found
