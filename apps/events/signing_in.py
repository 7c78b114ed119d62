"""Who signed in and out, and who was refused, for the audit log.

Whatever lets somebody in (a password, an identity provider, the admin site) sends Django's signals.
"""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed

from apps.events.services.auditing import audit_record

NO_SUCH_NAME = "no such account"


def connect() -> None:
    """Listen, once however often it is called."""
    user_logged_in.connect(_signed_in, dispatch_uid="events.signed_in")
    user_logged_out.connect(_signed_out, dispatch_uid="events.signed_out")
    user_login_failed.connect(_refused, dispatch_uid="events.refused")


def _signed_in(*, user: AbstractBaseUser, **_: Any) -> None:
    audit_record(
        "session.signed_in",
        actor=user,
        object_type="user",
        object_id=user.pk,
        data={"name": user.get_username()},
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


def _refused(*, credentials: dict[str, Any], **_: Any) -> None:
    """A name that is no account's is not kept: people type their password there by mistake."""
    given = str(credentials.get("username") or "")
    manager = get_user_model()._default_manager
    known = manager.filter(username=given).first() if given and "\0" not in given else None
    audit_record(
        "session.refused",
        actor=None,
        object_type="user",
        object_id=known.pk if known is not None else "",
        data={"name": known.get_username() if known is not None else NO_SUCH_NAME},
    )
