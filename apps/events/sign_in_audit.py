"""Records sign-ins, sign-outs, refusals and changes of second factors in the audit log.

Every sign-in (by a password, an identity provider, the admin site) sends Django's signals;
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
from apps.events.services.audit import audit_record

NO_SUCH_NAME = "no such account"


def connect() -> None:
    """Listen, once however often it is called."""
    user_logged_in.connect(_on_signed_in, dispatch_uid="events.signed_in")
    user_logged_out.connect(_on_signed_out, dispatch_uid="events.signed_out")
    user_login_failed.connect(_log_in_refused, dispatch_uid="events.refused")
    signals.authenticator_added.connect(_on_factor_added, dispatch_uid="events.factor_added")
    signals.authenticator_removed.connect(_on_factor_removed, dispatch_uid="events.factor_removed")
    signals.authenticator_reset.connect(_on_factor_renewed, dispatch_uid="events.factor_renewed")
    signals.authenticator_used.connect(_on_factor_used, dispatch_uid="events.factor_used")
    signals.authentication_failed.connect(_on_factor_refused, dispatch_uid="events.factor_refused")


def _on_signed_in(*, user: AbstractBaseUser, request: HttpRequest, **_: Any) -> None:
    audit_record(
        "session.signed_in",
        actor=user,
        object_type="user",
        object_id=user.pk,
        data={"name": user.get_username(), **_provider_facts(request, user)},
    )


def _on_signed_out(*, user: AbstractBaseUser | None, **_: Any) -> None:
    if user is not None and user.pk is not None:
        audit_record(
            "session.signed_out",
            actor=user,
            object_type="user",
            object_id=user.pk,
            data={"name": user.get_username()},
        )


def _provider_facts(request: HttpRequest, user: AbstractBaseUser) -> dict[str, str]:
    """The identity provider of the log-in; nothing where it is a password."""
    records = get_authentication_records(request, user)
    # A second factor comes after either.
    methods = [one for one in records if one["method"] in {"password", "socialaccount"}]
    slug = methods[-1].get("provider", "") if methods else ""
    if not slug:
        return {}
    row = IdentityProvider.objects.filter(slug=slug).first()
    return {"provider": row.name if row is not None else slug}


def _log_in_refused(
    *, credentials: dict[str, Any], provider: str = "", reason: str = "", **_: Any
) -> None:
    """A name without an account is not kept: people type their password there by mistake."""
    username = str(credentials.get("username") or "")
    manager = get_user_model()._default_manager
    known = manager.filter(username=username).first() if username and "\0" not in username else None
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


def _on_factor_added(*, user: AbstractBaseUser, authenticator: Authenticator, **_: Any) -> None:
    _of_factor("second_factor.added", user, after=_factor_facts(authenticator))


def _on_factor_removed(*, user: AbstractBaseUser, authenticator: Authenticator, **_: Any) -> None:
    _of_factor("second_factor.removed", user, before=_factor_facts(authenticator))


def _on_factor_renewed(*, user: AbstractBaseUser, authenticator: Authenticator, **_: Any) -> None:
    _of_factor("second_factor.renewed", user, after=_factor_facts(authenticator))


def _on_factor_used(*, user: AbstractBaseUser, authenticator: Authenticator, **_: Any) -> None:
    """Record recovery codes only: of factors in daily use, the log-in itself is recorded."""
    if authenticator.type == Authenticator.Type.RECOVERY_CODES:
        # The code that was used is marked on another copy of the row.
        now = Authenticator.objects.get(pk=authenticator.pk)
        left = len(now.wrap().get_unused_codes())
        _of_factor("second_factor.used", user, after={**_factor_facts(authenticator), "left": left})


def _on_factor_refused(*, user: AbstractBaseUser, **_: Any) -> None:
    """A wrong code: its sender knew the password, or used an open browser."""
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


def _factor_facts(authenticator: Authenticator) -> dict[str, Any]:
    """Kind and name of a second factor; never its secret."""
    facts = {"kind": str(authenticator.type)}
    if authenticator.type == Authenticator.Type.WEBAUTHN:
        facts["called"] = str(authenticator.data.get("name", ""))
    return facts
