"""Who signed in and out, and who was refused, for the audit log; and what is done to their second
factors.

Whatever lets somebody in (a password, an identity provider, the admin site) sends Django's signals;
second factors send django-allauth's.
"""

from typing import Any

from allauth.account.internal.flows.login import get_authentication_records
from allauth.mfa import signals
from allauth.mfa.models import Authenticator
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.http import HttpRequest

from apps.accounts.models import IdentityProvider
from apps.events.services.auditing import audit_record

NO_SUCH_NAME = "no such account"


def connect() -> None:
    """Listen, once however often it is called."""
    user_logged_in.connect(_signed_in, dispatch_uid="events.signed_in")
    user_logged_out.connect(_signed_out, dispatch_uid="events.signed_out")
    user_login_failed.connect(_refused, dispatch_uid="events.refused")
    signals.authenticator_added.connect(_factor_added, dispatch_uid="events.factor_added")
    signals.authenticator_removed.connect(_factor_removed, dispatch_uid="events.factor_removed")
    signals.authenticator_reset.connect(_factor_renewed, dispatch_uid="events.factor_renewed")
    signals.authenticator_used.connect(_factor_used, dispatch_uid="events.factor_used")
    signals.authentication_failed.connect(_factor_refused, dispatch_uid="events.factor_refused")


def _signed_in(*, user: AbstractBaseUser, request: HttpRequest, **_: Any) -> None:
    audit_record(
        "session.signed_in",
        actor=user,
        object_type="user",
        object_id=user.pk,
        data={"name": user.get_username(), **_vouching(request, user)},
    )


def _signed_out(*, user: AbstractBaseUser | None, **_: Any) -> None:
    if user is not None and user.pk is not None:
        audit_record(
            "session.signed_out",
            actor=user,
            object_type="user",
            object_id=user.pk,
            data={"name": user.get_username()},
        )


def _vouching(request: HttpRequest, user: AbstractBaseUser) -> dict[str, str]:
    """The identity provider by which somebody comes in; nothing where it is a password."""
    records = get_authentication_records(request, user)
    # A second factor comes after either.
    ways = [one for one in records if one["method"] in {"password", "socialaccount"}]
    slug = ways[-1].get("provider", "") if ways else ""
    if not slug:
        return {}
    row = IdentityProvider.objects.filter(slug=slug).first()
    return {"provider": row.name if row is not None else slug}


def _refused(
    *, credentials: dict[str, Any], provider: str = "", reason: str = "", **_: Any
) -> None:
    """A name that is no account's is not kept: people type their password there by mistake."""
    given = str(credentials.get("username") or "")
    manager = get_user_model()._default_manager
    known = manager.filter(username=given).first() if given and "\0" not in given else None
    audit_record(
        "session.refused",
        actor=None,
        object_type="user",
        object_id=known.pk if known is not None else "",
        data={
            "name": known.get_username() if known is not None else NO_SUCH_NAME,
            **({"provider": provider, "reason": reason} if provider else {}),
        },
    )


def _factor_added(*, user: AbstractBaseUser, authenticator: Authenticator, **_: Any) -> None:
    _of_factor("second_factor.added", user, after=_told(authenticator))


def _factor_removed(*, user: AbstractBaseUser, authenticator: Authenticator, **_: Any) -> None:
    _of_factor("second_factor.removed", user, before=_told(authenticator))


def _factor_renewed(*, user: AbstractBaseUser, authenticator: Authenticator, **_: Any) -> None:
    _of_factor("second_factor.renewed", user, after=_told(authenticator))


def _factor_used(*, user: AbstractBaseUser, authenticator: Authenticator, **_: Any) -> None:
    """Of what is used every day the log-in tells; a recovery code says that something was lost."""
    if authenticator.type == Authenticator.Type.RECOVERY_CODES:
        # The code that was used is marked on another copy of the row.
        now = Authenticator.objects.get(pk=authenticator.pk)
        left = len(now.wrap().get_unused_codes())
        _of_factor("second_factor.used", user, after={**_told(authenticator), "left": left})


def _factor_refused(*, user: AbstractBaseUser, **_: Any) -> None:
    """A wrong code: whoever typed it knew the password, or sat at an open browser."""
    audit_record(
        "second_factor.refused",
        actor=None,
        object_type="user",
        object_id=user.pk,
        data={"name": user.get_username()},
    )


def _of_factor(verb: str, user: AbstractBaseUser, **data: Any) -> None:
    audit_record(
        verb,
        actor=user,
        object_type="user",
        object_id=user.pk,
        data={"name": user.get_username(), **data},
    )


def _told(authenticator: Authenticator) -> dict[str, Any]:
    """What kind it is, and the name that its owner gave it; never what it proves itself with."""
    told = {"kind": str(authenticator.type)}
    if authenticator.type == Authenticator.Type.WEBAUTHN:
        told["called"] = str(authenticator.data.get("name", ""))
    return told
