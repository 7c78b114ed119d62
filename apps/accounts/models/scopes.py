"""The scopes of credentials."""

from django.db import models


class Scope(models.TextChoices):
    """Each includes those before it; none gives more than its owner may do."""

    READ = "read", "Read"
    ENQUEUE = "enqueue", "Enqueue"
    ADMINISTER = "administer", "Administer"

    def covers(self, needed: "Scope") -> bool:
        """Whether this scope includes `needed`."""
        return _ORDER.index(self) >= _ORDER.index(needed)

    def at_most(self, other: "Scope") -> "Scope":
        """The smaller one of the two."""
        return self if other.covers(self) else other


_ORDER = list(Scope)
