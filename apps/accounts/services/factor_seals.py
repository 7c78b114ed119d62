"""Seals of second factors, each for the person whose factor it is.

django-allauth seals and opens by an adapter that hears the text alone. So what is sealed carries
its place from the moment at which its row is in memory (`factor_bind`).
"""

from typing import Any, Self

from apps.core.keyring import SealContext, reseal, seal, unseal

# Where a second factor keeps what is sealed; keys for WebAuthn are public.
SEALED = ("secret", "seed")
# Between sealing and the row, in one process: nothing that is stored opens so.
_NEW = SealContext("accounts.second_factor.new")


class FactorSeal(str):
    """A sealed value, and where it opens."""

    __slots__ = ("context",)

    context: SealContext

    def __new__(cls, sealed: str, context: SealContext) -> Self:
        made = super().__new__(cls, sealed)
        made.context = context
        return made


def factor_seal(plain: str) -> FactorSeal:
    """Sealed until a row takes it."""
    return FactorSeal(seal(plain, context=_NEW), _NEW)


def factor_unseal(sealed: str) -> str:
    """What was sealed for the person of the row that it is in.

    Raises:
        CannotUnseal: the key is gone, or it was sealed for somebody else.
    """
    return unseal(sealed, context=sealed.context if isinstance(sealed, FactorSeal) else _NEW)


def factor_context(user_id: int, name: str) -> SealContext:
    """Where a value of somebody's second factor opens."""
    return SealContext("accounts.second_factor.data", (user_id,), name)


def factor_bind(*, instance: Any, **_: Any) -> None:
    """Let the sealed values of a row in memory know whose they are; new ones are sealed so."""
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
