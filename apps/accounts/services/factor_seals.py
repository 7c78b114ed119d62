"""Seals of second factors, each for the person whose factor it is.

django-allauth seals and unseals with an adapter that gets the text alone. So a sealed value carries
its context from the moment at which its row is in memory (`factor_bind`).
"""

from typing import Any, Self

from apps.core.keyring import SealContext, reseal, seal, unseal

# The sealed fields of a second factor; keys for WebAuthn are public.
SEALED = ("secret", "seed")
# Between sealing and the row, in one process: no stored value can be unsealed with it.
_NEW = SealContext("accounts.second_factor.new")


class FactorSeal(str):
    """A sealed value and its context."""

    __slots__ = ("context",)

    context: SealContext

    def __new__(cls, sealed: str, context: SealContext) -> Self:
        made = super().__new__(cls, sealed)
        made.context = context
        return made


def factor_seal(plain: str) -> FactorSeal:
    """Seal a value until a row binds it."""
    return FactorSeal(seal(plain, context=_NEW), _NEW)


def factor_unseal(sealed: str) -> str:
    """Unseal a value for the person of its row.

    Raises:
        CannotUnseal: the key is gone, or it was sealed for another user.
    """
    return unseal(sealed, context=sealed.context if isinstance(sealed, FactorSeal) else _NEW)


def factor_context(user_id: int, name: str) -> SealContext:
    """The context to which a value of a user's second factor is sealed."""
    return SealContext("accounts.second_factor.data", (user_id,), name)


def factor_bind(*, instance: Any, **_: Any) -> None:
    """Bind the sealed values of a row in memory to its person; new ones are sealed so."""
    fields = instance.__dict__  # a deferred column is not asked for
    data, user_id = fields.get("data"), fields.get("user_id")
    if user_id is None or not isinstance(data, dict):
        return
    for name in data.keys() & set(SEALED):
        context = factor_context(user_id, name)
        value = data[name]
        is_new = isinstance(value, FactorSeal) and value.context is _NEW
        sealed = reseal(value, context=_NEW, to=context) if is_new else value
        data[name] = FactorSeal(sealed, context)
