"""Identity providers and the rules of logging in, as administrators set them."""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.text import slugify

from apps.accounts.identity.keys import key_pair_new
from apps.accounts.identity.presets import PRESETS
from apps.accounts.identity.providers import DISCOVERY
from apps.accounts.identity.saml import entity_id_problem, issuer_of, metadata_problem
from apps.accounts.models import USERS, IdentityGroup, IdentityProvider, LogInRules, Protocol, User
from apps.accounts.selectors import is_admin, links_of
from apps.accounts.services.groups import admins_lock
from apps.core.errors import BadInput, Conflict
from apps.core.keyring import HIDDEN, CannotUnseal, seal, unseal
from apps.core.model_errors import from_model_error
from apps.core.outgoing_requests import address_problem
from apps.core.recorders import event_record

ADDRESSES = (
    *("discovery_url", "issuer", "authorization_url", "token_url"),
    *("user_info_url", "revocation_url", "jwks_url"),
)
_SHARED = (
    *("name", "is_active", "creates_people", "requires_verified_email", "trusts_email"),
    *("syncs_groups", "claim_id", "claim_email", "claim_name", "claim_given_name"),
    *("claim_family_name", "claim_picture", "claim_groups"),
)
FIELDS: dict[str, tuple[str, ...]] = {
    Protocol.OIDC: (
        *_SHARED,
        *("client_id", *ADDRESSES, "uses_user_info", "verifies_signature", "pkce"),
        *("scopes", "extra_scopes"),
    ),
    Protocol.SAML: (
        *_SHARED,
        *("entity_id", "metadata", "requires_signed_assertions", "signs_requests"),
    ),
}
MOST_METADATA = 500_000
# (the provider's name of a group, ours)
Mapping_ = Iterable[tuple[str, Group]]


def provider_draft(
    *, preset: str, slug: str, values: Mapping[str, Any], kept: IdentityProvider | None = None
) -> IdentityProvider:
    """A checked provider that is not saved. Switching one off is never refused.

    Args:
        values: fields of its protocol, and `client_secret` in clear; HIDDEN keeps that of `kept`.

    Raises:
        BadInput: naming the fields.
    """
    known = PRESETS.get(preset)
    if known is None:
        raise BadInput(f"There is no preset {preset!r}.", fields={"preset": ", ".join(PRESETS)})
    row = kept or IdentityProvider(**known.values)
    row.preset, row.protocol, row.slug = preset, known.protocol, slug
    for field in FIELDS[known.protocol]:
        if field in values:
            setattr(row, field, values[field])
    secret = values.get("client_secret", HIDDEN)
    if secret != HIDDEN:
        row.client_secret_sealed = seal(secret, context=row.client_secret_context) if secret else ""
    if kept is None or dict(values) != {"is_active": False}:
        _check(row)
    if row.signs_requests and not row.certificate:
        row.certificate, private = key_pair_new(slug)
        row.private_key_sealed = seal(private, context=row.private_key_context)
    return row


def provider_create(
    *,
    actor: User,
    preset: str,
    values: Mapping[str, Any],
    mapping: Mapping_ = (),
    slug: str = "",
    begun: IdentityProvider | None = None,
) -> IdentityProvider:
    """A new provider.

    Args:
        slug: of the callback address that was shown before; else it is made from the name.
        begun: the tested settings, for fields that forms do not show again: secret, metadata, keys.

    Raises:
        BadInput: naming the fields.
    """
    with transaction.atomic():
        known = PRESETS.get(preset)
        row = IdentityProvider(**known.values) if known is not None else None
        row = provider_draft(
            preset=preset,
            slug=slug or slug_new(str(values.get("name", preset))),
            values=values,
            kept=_without_draft(row, begun),
        )
        _save(row)
        mapping_set(row, mapping)
        _record("identity_provider.created", actor, row, after=facts(row))
    return row


def provider_change(
    *,
    actor: User,
    provider: IdentityProvider,
    values: Mapping[str, Any],
    mapping: Mapping_ | None = None,
    begun: IdentityProvider | None = None,
) -> IdentityProvider:
    """Change what `values` names, and the mapping of groups where one is given.

    With another issuer or claim of the id the same id may be another person's: links are dropped,
    and people are recognised by their e-mail addresses again.

    Args:
        begun: the tested settings, for fields that forms do not show again: secret, metadata, keys.

    Raises:
        BadInput: naming the fields.
    """
    with transaction.atomic():
        kept = IdentityProvider.objects.select_for_update().get(pk=provider.pk)
        before, secret, trust_settings = facts(kept), _secret(kept), _trust_settings(kept)
        row = provider_draft(
            preset=kept.preset, slug=kept.slug, values=values, kept=_without_draft(kept, begun)
        )
        _save(row)
        if mapping is not None:
            mapping_set(row, mapping)
        dropped = links_of(row).delete()[0] if _trust_settings(row) != trust_settings else 0
        after = facts(row)
        changed = [name for name in after if after[name] != before.get(name)]
        _record(
            "identity_provider.changed",
            actor,
            row,
            before={name: before.get(name) for name in changed},
            after={name: after[name] for name in changed},
            has_new_secret=_secret(row) != secret,
            **({"links_dropped": dropped} if dropped else {}),
        )
    return row


def provider_remove(*, actor: User, provider: IdentityProvider) -> None:
    """Remove a provider with its links; people, groups and memberships stay."""
    with transaction.atomic():
        # A log-in that happens at this moment leaves no link behind.
        list(IdentityProvider.objects.select_for_update().filter(pk=provider.pk))
        _record("identity_provider.removed", actor, provider, before=facts(provider))
        links_of(provider).delete()
        provider.delete()


def log_in_rules_change(
    *,
    actor: User,
    allows_passwords: bool,
    break_glass: User | None,
    requires_second_factor: bool,
    second_factor_groups: Iterable[Group] = (),
) -> LogInRules:
    """Change how people may log in.

    Raises:
        BadInput: nobody could sign in any more, or `break_glass` is no administrator.
    """
    with transaction.atomic():
        # The chosen administrator is not deactivated meanwhile.
        admins_lock()
        if not allows_passwords:
            _check_break_glass(break_glass)
        rules, _made = LogInRules.objects.select_for_update().get_or_create(pk=1)
        before = rules_facts(rules)
        rules.allows_passwords = allows_passwords
        rules.break_glass = break_glass
        rules.requires_second_factor = requires_second_factor
        rules.save()
        rules.second_factor_groups.set(second_factor_groups)
        event_record(
            "log_in_rules.changed",
            actor=actor,
            object_type="log_in_rules",
            object_id=1,
            data={"name": "Log-in", "before": before, "after": rules_facts(rules)},
        )
    return rules


def mapping_set(row: IdentityProvider, mapping: Mapping_) -> None:
    """Replace the mapping of the provider's groups to groups here.

    Raises:
        BadInput: everybody is in `Users` anyway.
    """
    pairs = sorted({(name, group.pk, group.name) for name, group in mapping})
    for _name, _pk, ours in pairs:
        if ours == USERS:
            words = f"everybody is in {USERS}: leave it out"
            raise BadInput(f"mapping: {words}.", fields={"mapping": words})
    row.mapping.all().delete()
    IdentityGroup.objects.bulk_create(
        [IdentityGroup(provider=row, external_name=name, group_id=pk) for name, pk, _ours in pairs]
    )


def slug_new(name: str) -> str:
    """An id that no provider has, and that cannot be guessed from those there are."""
    begin = slugify(name)[:24].strip("-") or "provider"
    return f"{begin}-{secrets.token_hex(3)}"


def facts(row: IdentityProvider) -> dict[str, Any]:
    """The facts of a provider that may be shown and logged: no secrets."""
    payload: dict[str, Any] = {name: getattr(row, name) for name in FIELDS[row.protocol]}
    if "token_url" in payload:
        # Under its own name the log takes it for a secret, and hides the address.
        payload["code_exchange_url"] = payload.pop("token_url")
    metadata = payload.pop("metadata", "")
    if metadata:
        # It is long; and with other certificates the provider's name in it stays.
        payload["provider_entity_id"] = issuer_of(metadata)
        payload["metadata_sha256"] = hashlib.sha256(metadata.encode()).hexdigest()
    if row.pk is not None:
        pairs = row.mapping.select_related("group").order_by("external_name", "group__name")
        payload["mapping"] = [f"{one.external_name} = {one.group.name}" for one in pairs]
    return payload


def rules_facts(rules: LogInRules) -> dict[str, Any]:
    """The rules of logging in, for the log."""
    return {
        "allows_passwords": rules.allows_passwords,
        "break_glass": rules.break_glass.username if rules.break_glass else "",
        "requires_second_factor": rules.requires_second_factor,
        "second_factor_groups": sorted(rules.second_factor_groups.values_list("name", flat=True)),
    }


def _without_draft(
    row: IdentityProvider | None, begun: IdentityProvider | None
) -> IdentityProvider | None:
    if row is not None and begun is not None:
        for name in ("client_secret_sealed", "metadata", "certificate", "private_key_sealed"):
            setattr(row, name, getattr(begun, name))
    return row


def _trust_settings(row: IdentityProvider) -> tuple[str, str]:
    """The settings on which the ids of people depend."""
    if row.protocol == Protocol.SAML:
        return issuer_of(row.metadata), row.claim_id
    issuer = row.issuer or row.discovery_url.removesuffix(DISCOVERY)
    return issuer.rstrip("/"), row.claim_id


def _secret(row: IdentityProvider) -> str:
    """In clear, to compare it: sealed, the same one is another text each time."""
    sealed = row.client_secret_sealed
    try:
        return unseal(sealed, context=row.client_secret_context) if sealed else ""
    except CannotUnseal:
        return sealed


def _check_break_glass(administrator: User | None) -> None:
    user = User.objects.filter(pk=administrator.pk).first() if administrator is not None else None
    if user is None or user.is_service or not is_admin(user) or not user.has_usable_password():
        words = "choose an administrator who has a password here"
        raise BadInput(f"break_glass: {words}.", fields={"break_glass": words})


def _check(row: IdentityProvider) -> None:
    problems = _oidc_problems(row) if row.protocol == Protocol.OIDC else _saml_problems(row)
    if not row.claim_id:
        problems["claim_id"] = "is missing: without it nobody is known again"
    if row.syncs_groups and not row.claim_groups:
        problems["claim_groups"] = "is missing: groups are synchronised by it"
    try:
        row.full_clean(validate_unique=False)
    except ValidationError as error:
        problems |= from_model_error(error).fields
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,38}[a-z0-9]", row.slug):
        problems["slug"] = "small letters, digits and hyphens, at most 40"
    if problems:
        raise BadInput(" ".join(f"{k}: {v}." for k, v in problems.items()), fields=problems)


def _oidc_problems(row: IdentityProvider) -> dict[str, str]:
    problems = {
        name: found
        for name in ADDRESSES
        if getattr(row, name) and (found := address_problem(getattr(row, name)))
    }
    if not row.client_id:
        problems["client_id"] = "is missing: the provider gives one with the client"
    if not row.discovery_url:
        needed = ["issuer", "authorization_url", "token_url"]
        needed += ["jwks_url"] if row.verifies_signature else []
        needed += ["user_info_url"] if row.uses_user_info else []
        for name in needed:
            if not getattr(row, name):
                problems[name] = "is missing: give it, or the discovery address"
    return problems


def _saml_problems(row: IdentityProvider) -> dict[str, str]:
    if len(row.metadata) > MOST_METADATA:
        return {"metadata": f"is too large: use at most {MOST_METADATA} characters"}
    found = {
        "metadata": metadata_problem(row.metadata),
        "entity_id": entity_id_problem(row.entity_id),
    }
    return {name: words for name, words in found.items() if words}


def _save(row: IdentityProvider) -> None:
    try:
        row.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    if IdentityProvider.objects.filter(slug=row.slug).exclude(pk=row.pk).exists():
        raise Conflict("A provider with this id is there already: begin again with a new one.")
    row.save()


def _record(kind: str, actor: User, row: IdentityProvider, **data: Any) -> None:
    event_record(
        kind,
        actor=actor,
        object_type="identity_provider",
        object_id=row.slug,
        data={"name": row.name, **data},
    )
