"""Sealing again what identity providers, second factors and invitations keep secret."""

from allauth.mfa.models import Authenticator
from django.db import transaction

from apps.accounts.models import IdentityProvider, Invitation
from apps.accounts.services.factor_seals import SEALED, factor_context
from apps.core.resealing import Resealing


@transaction.atomic
def identity_secrets_reseal(resealing: Resealing) -> tuple[int, int]:
    """Seal secrets of providers, second factors and mails again; how many of the first two."""
    providers, factors = 0, 0
    for row in IdentityProvider.objects.select_for_update():
        row.client_secret_sealed = resealing.value(
            row.client_secret_sealed, row.client_secret_context
        )
        row.private_key_sealed = resealing.value(row.private_key_sealed, row.private_key_context)
        row.save(update_fields=["client_secret_sealed", "private_key_sealed"])
        providers += bool(row.client_secret_sealed or row.private_key_sealed)
    for factor in Authenticator.objects.select_for_update():
        found = {
            name: resealing.value(factor.data[name], factor_context(factor.user_id, name))
            for name in SEALED
            if name in factor.data
        }
        if found:
            factor.data |= found
            factor.save(update_fields=["data"])
            factors += 1
    for invitation in Invitation.objects.exclude(sealed_link="").select_for_update():
        link = resealing.value(invitation.sealed_link, invitation.link_context)
        Invitation.objects.filter(pk=invitation.pk).update(sealed_link=link)
    return providers, factors
