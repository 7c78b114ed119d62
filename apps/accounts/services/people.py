"""The first administrator, people and groups."""

import hmac
import secrets

from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.models import ADMINS, BUILT_IN_GROUPS, USERS, GroupInfo, SetupToken, User
from apps.accounts.services.credentials import secret_hash
from apps.accounts.services.groups import memberships_lock
from apps.accounts.services.tenancy import one_tenant_check
from apps.core.errors import BadInput, NotAllowed
from apps.core.model_errors import from_model_error
from apps.core.recorders import event_record

DESCRIPTIONS = {
    "Users": "Everybody.",
    "Admins": "May do everything, the administration site included.",
    "Queue admins": "May create, rename, delete and reorder queues.",
}


def built_in_groups_ensure() -> None:
    """Make the three groups that cannot be removed."""
    for name in BUILT_IN_GROUPS:
        group, _ = Group.objects.get_or_create(name=name)
        GroupInfo.objects.update_or_create(
            group=group, defaults={"is_built_in": True, "description": DESCRIPTIONS[name]}
        )


def setup_token_create() -> str | None:
    """A one-time token for the set-up page; None where there are users already.

    An earlier unused token is replaced, so only the one printed last works.
    """
    with transaction.atomic():
        if User.objects.filter(is_service=False).exists():
            return None
        token = secrets.token_urlsafe(24)
        SetupToken.objects.all().delete()
        SetupToken.objects.create(token_hash=secret_hash(token))
        event_record(
            "installation.token_made",
            actor=None,
            object_type="installation",
            object_id=1,
            data={"name": "set-up"},
        )
    return token


def setup_complete(*, token: str, username: str, password: str, email: str = "") -> User:
    """Make the first administrator of an empty installation.

    Raises:
        NotAllowed: the token is wrong, used, or the installation is not empty.
        BadInput: name or password will not do.
    """
    with transaction.atomic():
        row = SetupToken.objects.select_for_update().first()
        is_empty = not User.objects.filter(is_service=False).exists()
        if (
            row is None
            or not is_empty
            or not hmac.compare_digest(row.token_hash, secret_hash(token))
        ):
            raise NotAllowed("This set-up token is not valid: use the one printed at start.")
        user = user_create(username=username, password=password, email=email, groups=[ADMINS])
        row.delete()
        event_record(
            "installation.set_up",
            actor=user,
            object_type="user",
            object_id=user.pk,
            data={"name": user.username, "after": {"groups": [USERS, ADMINS]}},
        )
    return user


def user_create(
    *, username: str, password: str | None, email: str = "", groups: list[str] | None = None
) -> User:
    """A person in `Users` and in the named groups; without a password they cannot log in yet.

    Raises:
        BadInput: naming the field.
    """
    user = User(username=username, email=email)
    if password is None:
        user.set_unusable_password()
    else:
        password_check(password, user)
        user.set_password(password)
    with transaction.atomic():
        memberships_lock()
        try:
            user.full_clean()
        except ValidationError as error:
            raise from_model_error(error) from error
        user.save()
        names = {USERS, *(groups or [])}
        found = list(Group.objects.filter(name__in=names))
        missing = names - {group.name for group in found}
        if missing:
            raise BadInput(f"There is no group {min(missing)!r}.", fields={"groups": "unknown"})
        user.groups.set(found)
        one_tenant_check([user.pk])
    return user


def password_check(password: str, user: User, *, field: str = "password") -> None:
    """Refuse a password that is too easily found.

    Raises:
        BadInput: naming `field`.
    """
    try:
        validate_password(password, user)
    except ValidationError as error:
        sentence = " ".join(error.messages)
        raise BadInput(sentence, fields={field: sentence}) from error
