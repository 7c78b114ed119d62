"""The scopes of credentials."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Scope(models.TextChoices):
    """Each includes those before it; none gives more than its owner may do."""

    READ = "read", _("Read")
    ENQUEUE = "enqueue", _("Enqueue")
    ADMINISTER = "administer", _("Administer")

    def covers(self, needed: "Scope") -> bool:
        """Whether this scope includes `needed`."""
        return _ORDER.index(self) >= _ORDER.index(needed)

    def at_most(self, other: "Scope") -> "Scope":
        """The smaller one of the two."""
        return self if other.covers(self) else other


_ORDER = list(Scope)
