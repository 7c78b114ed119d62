"""The credentials with which nodes pull private images for a group."""

from django.contrib.auth.models import Group
from django.core.validators import RegexValidator
from django.db import models

from apps.core.keyring import SealContext
from apps.policies.images import REGISTRY, REGISTRY_LENGTH

# Only names that cannot be the first part of a path: with a dot, a port, or this very machine.
_IS_REGISTRY = RegexValidator(
    rf"^{REGISTRY}\Z", "Use a host such as registry.example.org or localhost:5000."
)


class RegistryCredential(models.Model):
    """User and password of a group at one registry; the password only sealed.

    `version` counts the changes, so that a registry's answer to an earlier password is not taken
    for one to this.
    """

    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="registry_credentials")
    registry = models.CharField(
        max_length=REGISTRY_LENGTH,
        validators=[_IS_REGISTRY],
        help_text="The host, with its port if it has one, that images are fetched from.",
    )
    username = models.CharField(max_length=255)
    sealed_password = models.TextField(editable=False)
    version = models.PositiveIntegerField(default=1, editable=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["registry", "group__name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["group", "registry"],
                name="registry_credential_once_per_group",
                violation_error_message="The group has credentials for this registry.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.username} at {self.registry}"

    @property
    def password_context(self) -> SealContext:
        """The context to which its password is sealed: this group at this registry."""
        row = (self.group_id, self.registry)
        return SealContext("policies.registry_credential.password", row)
