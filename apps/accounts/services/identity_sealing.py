"""Sealing what identity providers and second factors keep secret with the first key of the ring."""

from allauth.mfa.models import Authenticator
from django.db import transaction

from apps.accounts.models import IdentityProvider
from apps.core.keyring import reseal

# Where a second factor keeps what is sealed; keys for WebAuthn are public.
_SEALED = ("secret", "seed")


def identity_secrets_reseal() -> tuple[int, int]:
    """Seal secrets of providers and of second factors anew; how many rows of both.

    Raises:
        KeyMissing: with none of the keys at hand.
    """
    providers, factors = 0, 0
    with transaction.atomic():
        for row in IdentityProvider.objects.select_for_update():
            row.client_secret_sealed = _again(row.client_secret_sealed)
            row.private_key_sealed = _again(row.private_key_sealed)
            row.save(update_fields=["client_secret_sealed", "private_key_sealed"])
            providers += bool(row.client_secret_sealed or row.private_key_sealed)
        for factor in Authenticator.objects.select_for_update():
            kept = {name: factor.data[name] for name in _SEALED if name in factor.data}
            if kept:
                factor.data |= {name: reseal(value) for name, value in kept.items()}
                factor.save(update_fields=["data"])
                factors += 1
    return providers, factors


def _again(sealed: str) -> str:
    return reseal(sealed) if sealed else ""
