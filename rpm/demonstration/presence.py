"""Whether the demonstration is loaded, and whether it goes on: a label of its nodes says so."""

import json
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.nodes.models import Node
from rpm.demonstration.catalog import ACTIVE, MARK, PAUSED


@dataclass(frozen=True, slots=True)
class DemonstrationLogin:
    """A person of the demonstration; the password was made at random here."""

    username: str
    password: str
    role: str


def nodes() -> QuerySet[Node]:
    """Its nodes, also those that were removed."""
    is_marked = Q(labels={MARK: ACTIVE}) | Q(labels={MARK: PAUSED})
    return Node.objects.filter(is_marked, is_simulated=True)


def is_loaded() -> bool:
    """Whether the demonstration is loaded, or was removed on purpose."""
    return nodes().exists()


def is_present() -> bool:
    return nodes().filter(removed_at__isnull=True).exists()


def active_nodes() -> QuerySet[Node]:
    """Those that tell that it goes on."""
    return nodes().filter(removed_at__isnull=True, labels={MARK: ACTIVE})


def is_active() -> bool:
    """Whether it enqueues tasks."""
    return active_nodes().exists()


def pause() -> None:
    """Enqueue nothing more; what waits and runs goes on."""
    nodes().filter(removed_at__isnull=True).update(labels={MARK: PAUSED})


def resume() -> None:
    nodes().filter(removed_at__isnull=True).update(labels={MARK: ACTIVE})


def logins_path() -> Path:
    return Path(settings.HOME.file("demonstration-logins.json"))


def stored_logins() -> list[DemonstrationLogin]:
    """The log-ins made at the first load, in a 0600 file next to the database."""
    try:
        content = logins_path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [DemonstrationLogin(**one) for one in json.loads(content)]
