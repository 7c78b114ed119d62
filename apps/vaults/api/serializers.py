"""Vaults as REST reads and answers them."""

from functools import cached_property
from typing import Any
from uuid import UUID

from rest_framework import serializers

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.serializers import NameSerializer, StrictSerializer
from apps.events.models import Event
from apps.vaults.models import NAME_LENGTH, Vault, VaultFormat, VaultVersion
from apps.vaults.selectors.effective import version_text
from apps.vaults.selectors.seen import group_places, vault_rights
from apps.vaults.text.shapes import TEXT_BYTES

_TEXT_HELP = "Values under `secrets` are `********`; sent back so, they stay what they are."
_ENFORCED_HELP = "Paths such as `environment.HTTP_PROXY` that win over everything; `*` is all."


class VaultSerializer(serializers.ModelSerializer[Vault]):
    """What everybody may know who sees the vault; `may` is what the reader may do."""

    kind = serializers.SerializerMethodField()
    owner = serializers.CharField(
        source="owner.username", default=None, allow_null=True, read_only=True
    )
    group = NameSerializer(read_only=True, allow_null=True)
    position = serializers.SerializerMethodField(
        help_text="From 1; of a group's vault among those that the reader sees. Higher ones win."
    )
    keys = serializers.SerializerMethodField(
        help_text="Those at the top; null for who may only switch it off."
    )
    enforced = serializers.SerializerMethodField(help_text=_ENFORCED_HELP)
    updated_by = serializers.SerializerMethodField(
        help_text="Who changed it last; null for who may not read who did what with it, or them."
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
        # One that came since the places were read is the highest.
        return self._places.get(vault.pk, len(self._places) + 1)

    def get_keys(self, vault: Vault) -> list[str] | None:
        return list(vault.summary) if _may_summarize(self._user, vault) else None

    def get_enforced(self, vault: Vault) -> list[str] | None:
        return list(vault.enforced) if _may_summarize(self._user, vault) else None

    def get_updated_by(self, vault: Vault) -> str | None:
        rights = vault_rights(self._user, vault)
        is_told = rights.read or rights.switch_off
        return vault.updated_by.username if is_told and vault.updated_by else None

    def get_may(self, vault: Vault) -> dict[str, bool]:
        rights = vault_rights(self._user, vault)
        return {
            "read": rights.read,
            "change": rights.change,
            "switch_off": rights.switch_off,
            "remove": rights.own,
        }

    @property
    def _user(self) -> User:
        user: User = self.context["request"].user
        return user

    @cached_property
    def _places(self) -> dict[UUID, int]:
        return group_places(self._user)


class VaultTextSerializer(VaultSerializer):
    """With its text, for those who may read it."""

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
        help_text="Name of a group; only administrators. Null: a vault of one's own.",
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
    place = serializers.IntegerField(
        min_value=0, max_value=9999, help_text="0 is the lowest of its kind; higher ones win."
    )


class VaultRestoreSerializer(StrictSerializer):
    to = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, help_text="The version whose text comes back."
    )


class VaultVersionSerializer(serializers.ModelSerializer[VaultVersion]):
    """One version of a vault; the last ones are kept."""

    by = serializers.CharField(source="by.username", default=None, allow_null=True, read_only=True)

    class Meta:
        model = VaultVersion
        fields = ["version", "format", "enforced", "at", "by"]
        read_only_fields = fields


class VaultVersionTextSerializer(VaultVersionSerializer):
    """With what the vault held then."""

    text = serializers.SerializerMethodField(help_text=_TEXT_HELP)

    class Meta(VaultVersionSerializer.Meta):
        fields = [*VaultVersionSerializer.Meta.fields, "text"]

    def get_text(self, row: VaultVersion) -> str:
        return version_text(row)


class VaultCheckSerializer(StrictSerializer):
    format = serializers.ChoiceField(choices=VaultFormat.choices)
    text = serializers.CharField(allow_blank=True, max_length=TEXT_BYTES, trim_whitespace=False)


class VaultCheckedSerializer(serializers.Serializer[Any]):
    """Whether the text would do; `line` and `column` count from 1, 0 where there is no place."""

    is_valid = serializers.BooleanField()  # type: ignore[assignment]  # the metaclass takes it away
    problem = serializers.CharField(allow_blank=True)
    line = serializers.IntegerField()
    column = serializers.IntegerField()
    keys = serializers.ListField(child=serializers.CharField())


class VaultEventSerializer(serializers.ModelSerializer[Event]):
    """Who did what with a vault; never what it holds."""

    actor = serializers.CharField(
        source="actor.username", default=None, allow_null=True, read_only=True
    )

    class Meta:
        model = Event
        fields = ["id", "at", "kind", "actor", "data"]
        read_only_fields = fields


def _may_summarize(user: User, vault: Vault) -> bool:
    """Of somebody else's personal vault administrators know the name and size only."""
    return not vault.is_personal or vault_rights(user, vault).read
