"""Seals the secrets of identity providers, second factors and invitations again."""

from allauth.mfa.models import Authenticator
from django.db import transaction

from apps.accounts.models import IdentityProvider, Invitation
from apps.accounts.services.factor_seals import SEALED, factor_context
from apps.core.resealer import Resealer


@transaction.atomic
def identity_secrets_reseal(resealer: Resealer) -> tuple[int, int]:
    """Seal secrets of providers, second factors and mails again; how many of the first two."""
    providers, factors = 0, 0
    for row in IdentityProvider.objects.select_for_update():
        row.client_secret_sealed = resealer.value(
            row.client_secret_sealed, row.client_secret_context
        )
        row.private_key_sealed = resealer.value(row.private_key_sealed, row.private_key_context)
        row.save(update_fields=["client_secret_sealed", "private_key_sealed"])
        providers += bool(row.client_secret_sealed or row.private_key_sealed)
    for factor in Authenticator.objects.select_for_update():
        found = {
            name: resealer.value(factor.data[name], factor_context(factor.user_id, name))
            for name in SEALED
            if name in factor.data
        }
        if found:
            factor.data |= found
            factor.save(update_fields=["data"])
            factors += 1
    for invitation in Invitation.objects.exclude(sealed_link="").select_for_update():
        link = resealer.value(invitation.sealed_link, invitation.link_context)
        Invitation.objects.filter(pk=invitation.pk).update(sealed_link=link)
    return providers, factors
