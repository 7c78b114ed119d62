"""What is wrong with the answers: one that differs from the rules, a trace, or a leak."""

import re
from collections.abc import Iterable, Iterator

from tests.authorisation.answers import Answer
from tests.authorisation.cells import Cell, address_of, cells_of
from tests.authorisation.marks import Mark, Marks
from tests.authorisation.requester import Reply, Requester
from tests.authorisation.roles import Relation, Role
from tests.authorisation.rules import rule_for
from tests.authorisation.surfaces import Surface
from tests.authorisation.visibility import may_know
from tests.page_words import without_tokens

# Differs from answer to answer, and reveals nothing.
_PASSING = re.compile(
    r"X-Request-ID: .*|Set-Cookie: .*|Content-Length: .*|ETag: .*|Expires: .*"
    r"|\d\d:\d\d(:\d\d)?(\.\d+)?"
)
# What is shown there and nowhere else: the holder of a link learns whose it is, and the owner of a
# task what the team's vault brings to it.
_SHOWN_AT = {
    "/join/<token>/": frozenset({"guest", "guest-mail"}),
    "/api/v1/tasks/<pk>/effective-vault/": frozenset({"team-vault-text"}),
    "/tasks/<pk>/vaults/": frozenset({"team-vault-text"}),
}

# A refused log-in is recorded in the audit log.
_RECORDED_AT = {"/sign-in/with/<slug>/callback/": frozenset({"events_auditentry"})}


def findings(requester: Requester, role: Role, surfaces: Iterable[Surface]) -> Iterator[str]:
    """A sentence for each fault in the answers to this role."""
    for surface in surfaces:
        cells = list(cells_of(requester.world, role, surface))
        replies = [(cell, requester.ask(cell)) for cell in cells]
        for cell, reply in replies:
            yield from reply_findings(requester.world.marks, cell, reply)
        yield from _distinguishable(requester, replies)


def reply_findings(marks: Marks, cell: Cell, reply: Reply) -> Iterator[str]:
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
    """Names in the reply that its reader may not know and did not send."""
    for word, mark in sorted(marks.found(text).items()):
        is_shown = mark.kind in _SHOWN_AT.get(cell.surface.address, ()) and mark.place == cell.place
        if word not in said and not is_shown and not may_know(cell.role, mark):
            yield f"{cell}: tells {word}, {mark.kind} of {mark.place}{mark.owner}"


def plain(text: str, *keys: str) -> str:
    """An answer without varying parts, and without the keys of the request."""
    for key in keys:
        text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", "…", text)
    return without_tokens(_PASSING.sub("", text))


def _distinguishable(requester: Requester, replies: list[tuple[Cell, Reply]]) -> Iterator[str]:
    """Cells whose hidden object is answered differently from one that does not exist."""
    absent = {
        cell.kind: (cell, reply) for cell, reply in replies if cell.relation is Relation.ABSENT
    }
    for cell, reply in replies:
        other, nothing = absent.get(cell.kind, (cell, reply))
        if reply.answer is not Answer.HIDE or nothing.answer is not Answer.HIDE or cell is other:
            continue
        if may_know(cell.role, Mark(cell.kind, cell.place, cell.owner)):
            continue
        keys = [*_filled(requester, cell), *_filled(requester, other)]
        if plain(reply.text, *keys) != plain(nothing.text, *keys):
            yield f"{cell}: differs from what there is not"


def _filled(requester: Requester, cell: Cell) -> list[str]:
    """The values in the holes of the address."""
    pieces = re.split(r"[/=]", address_of(requester.world, cell))
    return [one for one in pieces if one and one not in cell.surface.address]
