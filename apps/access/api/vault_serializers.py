"""Request and response shapes of vaults."""

from functools import cached_property
from typing import Any
from uuid import UUID

from rest_framework import serializers

from apps.access.vaults import group_positions, vault_permissions
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.serializers import NameSerializer, StrictSerializer
from apps.events.models import Event
from apps.vaults.models import NAME_LENGTH, Vault, VaultFormat, VaultVersion
from apps.vaults.selectors.effective import version_text
from apps.vaults.text.bounds import TEXT_BYTES

_TEXT_HELP = "Values under `secrets` are `********`; sent back like that, they stay unchanged."
_ENFORCED_HELP = "Paths such as `environment.HTTP_PROXY` that win over everything; `*` is all."


class VaultSerializer(serializers.ModelSerializer[Vault]):
    """The fields for every user who sees the vault; `may` is what the reader may do."""

    kind = serializers.SerializerMethodField()
    owner = serializers.CharField(
        source="owner.username", default=None, allow_null=True, read_only=True
    )
    group = NameSerializer(read_only=True, allow_null=True)
    position = serializers.SerializerMethodField(
        help_text="From 1; for a group's vault among those that the reader sees. Higher ones win."
    )
    keys = serializers.SerializerMethodField(
        help_text="The keys at the top; null for users who may only switch it off."
    )
    enforced = serializers.SerializerMethodField(help_text=_ENFORCED_HELP)
    updated_by = serializers.SerializerMethodField(
        help_text="The last user who changed it; null for readers who may not see that user."
    )
    may = serializers.SerializerMethodField()

    class Meta:
        model = Vault
        fields = [
            *("id", "name", "kind", "owner", "group", "format", "is_active", "position"),
            *("enforced", "keys", "size", "version", "updated_at", "updated_by", "may"),
        ]
        read_only_fields = fields

    def get_kind(self, vault: Vault) -> str:
        return "personal" if vault.is_personal else "group"

    def get_position(self, vault: Vault) -> int:
        if vault.is_personal or is_admin(self._user):
            return vault.position
        # A vault that was created after the places were read is the highest.
        return self._positions.get(vault.pk, len(self._positions) + 1)

    def get_keys(self, vault: Vault) -> list[str] | None:
        return list(vault.summary) if _may_summarize(self._user, vault) else None

    def get_enforced(self, vault: Vault) -> list[str] | None:
        return list(vault.enforced) if _may_summarize(self._user, vault) else None

    def get_updated_by(self, vault: Vault) -> str | None:
        permissions = vault_permissions(self._user, vault)
        can_know = permissions.read or permissions.switch_off
        return vault.updated_by.username if can_know and vault.updated_by else None

    def get_may(self, vault: Vault) -> dict[str, bool]:
        permissions = vault_permissions(self._user, vault)
        return {
            "read": permissions.read,
            "change": permissions.change,
            "switch_off": permissions.switch_off,
            "remove": permissions.own,
        }

    @property
    def _user(self) -> User:
        user: User = self.context["request"].user
        return user

    @cached_property
    def _positions(self) -> dict[UUID, int]:
        return group_positions(self._user)


class VaultTextSerializer(VaultSerializer):
    """A vault with its text, for users who may read it."""

    text = serializers.CharField(read_only=True, allow_null=True, help_text=_TEXT_HELP)

    class Meta(VaultSerializer.Meta):
        fields = [*VaultSerializer.Meta.fields, "text"]


class VaultCreateSerializer(StrictSerializer):
    name = serializers.CharField(max_length=NAME_LENGTH)
    format = serializers.ChoiceField(choices=VaultFormat.choices, default=VaultFormat.HOCON)
    text = serializers.CharField(
        allow_blank=True, default="", max_length=TEXT_BYTES, trim_whitespace=False
    )
    group = serializers.CharField(
        allow_null=True,
        default=None,
        max_length=150,
        help_text="Name of a group; only administrators. Null: a personal vault.",
    )
    is_active = serializers.BooleanField(default=False)
    enforced = serializers.ListField(
        child=serializers.CharField(max_length=300),
        max_length=100,
        default=list,
        help_text=_ENFORCED_HELP,
    )


class VaultChangeSerializer(StrictSerializer):
    name = serializers.CharField(max_length=NAME_LENGTH, required=False)
    format = serializers.ChoiceField(choices=VaultFormat.choices, required=False)
    text = serializers.CharField(
        allow_blank=True,
        max_length=TEXT_BYTES,
        required=False,
        trim_whitespace=False,
        help_text=_TEXT_HELP,
    )
    is_active = serializers.BooleanField(required=False)
    enforced = serializers.ListField(
        child=serializers.CharField(max_length=300),
        max_length=100,
        required=False,
        help_text=_ENFORCED_HELP,
    )


class VaultMoveSerializer(StrictSerializer):
    position = serializers.IntegerField(
        min_value=1, max_value=10000, help_text="1 is the lowest of its kind; higher ones win."
    )


class VaultRestoreSerializer(StrictSerializer):
    to = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, help_text="The version to restore."
    )


class VaultVersionSerializer(serializers.ModelSerializer[VaultVersion]):
    """One of the kept versions of a vault."""

    by = serializers.CharField(source="by.username", default=None, allow_null=True, read_only=True)

    class Meta:
        model = VaultVersion
        fields = ["version", "format", "enforced", "at", "by"]
        read_only_fields = fields


class VaultVersionTextSerializer(VaultVersionSerializer):
    """A version with its text."""

    text = serializers.SerializerMethodField(help_text=_TEXT_HELP)

    class Meta(VaultVersionSerializer.Meta):
        fields = [*VaultVersionSerializer.Meta.fields, "text"]

    def get_text(self, row: VaultVersion) -> str:
        return version_text(row)


class VaultCheckSerializer(StrictSerializer):
    format = serializers.ChoiceField(choices=VaultFormat.choices)
    text = serializers.CharField(allow_blank=True, max_length=TEXT_BYTES, trim_whitespace=False)


class VaultCheckedSerializer(serializers.Serializer[Any]):
    """Whether the text is valid; `line` and `column` count from 1, and are 0 without a place."""

    is_valid = serializers.BooleanField()  # type: ignore[assignment]  # the metaclass removes it
    problem = serializers.CharField(allow_blank=True)
    line = serializers.IntegerField()
    column = serializers.IntegerField()
    keys = serializers.ListField(child=serializers.CharField())


class VaultEventSerializer(serializers.ModelSerializer[Event]):
    """A change of a vault and its actor; never what the vault holds."""

    actor = serializers.CharField(
        source="actor.username", default=None, allow_null=True, read_only=True
    )

    class Meta:
        model = Event
        fields = ["id", "at", "kind", "actor", "data"]
        read_only_fields = fields


def _may_summarize(user: User, vault: Vault) -> bool:
    """Whether the user sees keys; administrators see none of other users' personal vaults."""
    return not vault.is_personal or vault_permissions(user, vault).read
