"""What is wrong with the answers: another one than the rules say, a trace, or a leak."""

import re
from collections.abc import Iterable, Iterator

from tests.authorisation.answers import Answer
from tests.authorisation.asking import Asker, Reply
from tests.authorisation.cells import Cell, address_of, cells_of
from tests.authorisation.knowing import may_know
from tests.authorisation.marks import Mark, Marks
from tests.authorisation.roles import Role, Whose
from tests.authorisation.rules import rule_for
from tests.authorisation.surfaces import Surface

# Differs from answer to answer, and tells nothing.
_PASSING = re.compile(
    r"X-Request-ID: .*|Set-Cookie: .*|Content-Length: .*|ETag: .*|Expires: .*"
    r'|"request_id": ?"[^"]*"|csrf[^>]*value="[^"]*"|nonce[-=]"?[\w+/=-]*'
    r"|X-CSRFToken[^}]*}|\d\d:\d\d(:\d\d)?(\.\d+)?"
)
# What is told there and nowhere else: whoever has a link learns whose it is, and the owner of a
# task what the team's vault brings to it.
_TOLD_AT = {
    "/join/<token>/": frozenset({"guest", "guest-mail"}),
    "/api/v1/tasks/<pk>/effective-vault/": frozenset({"team-vault-text"}),
    "/tasks/<pk>/vaults/": frozenset({"team-vault-text"}),
}

# That somebody could not log in is told to the audit log.
_RECORDED_AT = {"/sign-in/with/<slug>/callback/": frozenset({"events_auditentry"})}


def findings(asker: Asker, role: Role, surfaces: Iterable[Surface]) -> Iterator[str]:
    """A sentence for each thing that is wrong with what this role is answered."""
    for surface in surfaces:
        cells = list(cells_of(asker.world, role, surface))
        replies = [(cell, asker.ask(cell)) for cell in cells]
        for cell, reply in replies:
            yield from judged(asker.world.marks, cell, reply)
        yield from _told_apart(asker, replies)


def judged(marks: Marks, cell: Cell, reply: Reply) -> Iterator[str]:
    """What is wrong with one reply."""
    wanted = rule_for(cell)
    if wanted is None:
        yield f"{cell}: no rule"
        return
    written = set(reply.written) - _RECORDED_AT.get(cell.surface.address, frozenset())
    if reply.answer not in wanted.answers:
        words = " or ".join(wanted.answers)
        yield f"{cell}: {reply.answer} ({reply.status}) instead of {words}"
    elif written and reply.answer not in {Answer.ALLOW, Answer.SIGN_IN}:
        yield f"{cell}: refused, and yet written to {', '.join(sorted(written))}"
    yield from leaks(marks, cell, reply.text, said=reply.said)


def leaks(marks: Marks, cell: Cell, text: str, *, said: str = "") -> Iterator[str]:
    """What the reply names that is not for its reader, beyond what they said themselves."""
    for word, mark in sorted(marks.found(text).items()):
        is_told = mark.kind in _TOLD_AT.get(cell.surface.address, ()) and mark.place == cell.place
        if word not in said and not is_told and not may_know(cell.role, mark):
            yield f"{cell}: tells {word}, {mark.kind} of {mark.place}{mark.owner}"


def plain(text: str, *keys: str) -> str:
    """An answer without what differs each time, and without what was asked for."""
    for key in keys:
        text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", "…", text)
    return _PASSING.sub("", text)


def _told_apart(asker: Asker, replies: list[tuple[Cell, Reply]]) -> Iterator[str]:
    """What is hidden is answered word for word as what there is not."""
    absent = {cell.kind: (cell, reply) for cell, reply in replies if cell.whose is Whose.ABSENT}
    for cell, reply in replies:
        other, nothing = absent.get(cell.kind, (cell, reply))
        if reply.answer is not Answer.HIDE or nothing.answer is not Answer.HIDE or cell is other:
            continue
        if may_know(cell.role, Mark(cell.kind, cell.place, cell.owner)):
            continue
        keys = [*_filled(asker, cell), *_filled(asker, other)]
        if plain(reply.text, *keys) != plain(nothing.text, *keys):
            yield f"{cell}: told apart from what there is not"


def _filled(asker: Asker, cell: Cell) -> list[str]:
    """What stands in the holes of the address."""
    pieces = re.split(r"[/=]", address_of(asker.world, cell))
    return [one for one in pieces if one and one not in cell.surface.address]
