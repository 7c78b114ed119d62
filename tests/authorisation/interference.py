"""Repeats requests after others created objects: hidden ones must change no answer."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.utils import timezone

from apps.accounts.services.credentials import credential_create
from apps.accounts.services.groups import group_save
from apps.accounts.services.people import user_create
from apps.core import clock
from apps.tasks.services.enqueue.submission import task_create, task_submit
from apps.tasks.task_spec import TaskSpec
from apps.vaults.services.vaults import vault_create
from tests.authorisation.answers import Answer
from tests.authorisation.cells import Cell, cells_of
from tests.authorisation.findings import plain
from tests.authorisation.requester import Requester, rolled_back
from tests.authorisation.roles import Relation, Role
from tests.authorisation.rules import rule_for
from tests.authorisation.surfaces import surfaces
from tests.authorisation.world import OWNER, TEAMS, World

# Pages with keys that are made at random.
BY_CHANCE = "/settings/second-factor/"


def changes(requester: Requester, role: Role) -> Iterator[str]:
    """Answers that change once others have more objects."""
    now = timezone.now()
    with pytest.MonkeyPatch.context() as patches, rolled_back():
        for module in (timezone, clock):
            patches.setattr(module, "now", lambda: now)
        cache.clear()
        before = {cell: plain(requester.ask(cell).text) for cell in _read(requester.world, role)}
        _more(requester.world, role)
        # Estimates that an answer asked for are in later ones as well.
        cache.clear()
        for cell, text in before.items():
            if plain(requester.ask(cell).text) != text:
                yield f"{cell}: changes with what others have"


def _read(world: World, role: Role) -> Iterator[Cell]:
    """The cells that this role may read: about no object, its own or its team's."""
    for surface in surfaces():
        if surface.method not in {"GET", "CARD"} or surface.address.startswith(BY_CHANCE):
            continue
        for cell in cells_of(world, role, surface):
            rule = rule_for(cell)
            is_read = rule is not None and Answer.ALLOW in rule.answers
            if is_read and cell.relation in {Relation.NOTHING, Relation.OWN, Relation.TEAM}:
                yield cell


def _more(world: World, role: Role) -> None:
    """For everybody elsewhere create a draft, a waiting task, a vault and a credential."""
    root = world.people["root"]
    for place in TEAMS:
        person = world.people[f"{place}-{OWNER}"]
        if role.relation(place, "") not in {Relation.OTHER, Relation.FOREIGN}:
            continue
        task_create(actor=person, spec=TaskSpec(name="more", command=["x"]))
        queue = world.one("queue", place).name
        task_submit(actor=person, spec=TaskSpec(name="m", command=["x"], queue=queue))
        vault_create(actor=person, name="more", text="a: 1", format="yaml", is_active=True)
        credential_create(user=person, label="more")
        user_create(
            username=f"more-{place}", password=None, groups=[world.one("group", place).name]
        )
    group_save(actor=root, group=Group(name="more"), description="", members=[root])
