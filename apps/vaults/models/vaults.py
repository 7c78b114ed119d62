"""Texts that tasks are configured with, sealed."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models.functions import Lower

from apps.core.ids import uuid7
from apps.core.keyring import SealContext
from apps.core.models import NAME_TAKEN

NAME_LENGTH = 100


class VaultFormat(models.TextChoices):
    HOCON = "hocon", "HOCON"
    JSON = "json", "JSON"
    YAML = "yaml", "YAML"


class Vault(models.Model):
    """A text of a user or of a group; its current content is the version `version`.

    `position` orders the vaults of one owner, and those of all groups: later ones win.
    `summary` are the keys at the top. `enforced` are paths that win over everything, "*" all.
    `size` is the bytes of the text, `data_size` those of its data, with substitutions written out.
    A removed vault stays until no task that started with it is left.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=NAME_LENGTH)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="vaults",
    )
    group = models.ForeignKey(
        Group, null=True, blank=True, on_delete=models.PROTECT, related_name="vaults"
    )
    format = models.CharField(
        max_length=5, choices=VaultFormat.choices, default=VaultFormat.HOCON, db_default="hocon"
    )
    is_active = models.BooleanField(default=False)
    position = models.PositiveIntegerField(default=0)
    enforced = models.JSONField(default=list, blank=True)
    summary = models.JSONField(default=list, blank=True)
    size = models.PositiveIntegerField(default=0)
    data_size = models.PositiveIntegerField(db_default=0, default=0, editable=False)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    removed_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["position", "id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(owner__isnull=False) ^ models.Q(group__isnull=False),
                name="vault_of_a_person_or_a_group",
                violation_error_message="A vault belongs to a person or to a group.",
            ),
            models.UniqueConstraint(
                Lower("name"),
                "owner",
                condition=models.Q(removed_at__isnull=True, owner__isnull=False),
                name="vault_name_of_owner_unique",
                violation_error_message=NAME_TAKEN,
            ),
            models.UniqueConstraint(
                Lower("name"),
                condition=models.Q(removed_at__isnull=True, group__isnull=False),
                name="vault_name_of_groups_unique",
                violation_error_message=NAME_TAKEN,
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_personal(self) -> bool:
        return self.owner_id is not None


class VaultVersion(models.Model):
    """The sealed content of a version: the whole text, and its data as JSON.

    Texts are parsed when they are written; tasks, logs and requests read the data, because parsing
    a text may take a large part of a second. `sealed_data` is empty in old versions until
    `vaults_store_data`.
    """

    vault = models.ForeignKey(Vault, on_delete=models.CASCADE, related_name="versions")
    version = models.PositiveIntegerField()
    format = models.CharField(max_length=5, choices=VaultFormat.choices)
    enforced = models.JSONField(default=list, blank=True)
    sealed_text = models.TextField(editable=False)
    sealed_data = models.TextField(editable=False, default="", db_default="", blank=True)
    at = models.DateTimeField()
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["-version"]
        constraints = [
            models.UniqueConstraint(fields=["vault", "version"], name="vault_version_once"),
        ]

    def __str__(self) -> str:
        return f"version {self.version} of {self.vault_id}"

    @property
    def text_context(self) -> SealContext:
        """The context of the text: in another format, stars would not cover its secrets."""
        return self._context("vaults.version.text")

    @property
    def data_context(self) -> SealContext:
        """The context of the data."""
        return self._context("vaults.version.data")

    def _context(self, purpose: str) -> SealContext:
        vault = self.vault
        owner = f"group {vault.group_id}" if vault.owner_id is None else f"user {vault.owner_id}"
        row = (str(self.vault_id), self.version, self.format, owner)
        return SealContext(purpose, row)
