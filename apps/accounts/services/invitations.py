"""Invites people by a link that works once."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone

from apps.accounts.models import Invitation, MailState, User
from apps.accounts.selectors import is_admin, may_use_password, people_managed_by
from apps.accounts.services.credentials import secret_hash
from apps.accounts.services.groups import permissions_change_notify
from apps.accounts.services.mail import mail_is_set_up
from apps.accounts.services.people import password_check, user_create
from apps.accounts.services.people_changes import email_check, new_nonce, person_lock, person_save
from apps.accounts.services.tenancy import invitation_check
from apps.core.errors import BadInput, Conflict, NotAllowed
from apps.core.keyring import seal
from apps.core.notifications import after_commit
from apps.core.recorders import event_record

TOKEN_BYTES = 32
DAYS, MOST_DAYS = 7, 90
SEND_MAIL = "accounts.send_mail"

# Builds the full address of the page for a token.
Address = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class NewInvitation:
    """`link` is shown once and kept nowhere; with `is_mailed` it is being sent, too."""

    user: User
    invitation: Invitation
    link: str

    @property
    def is_mailed(self) -> bool:
        return self.invitation.mail_state == MailState.WAITING


@transaction.atomic
def person_invite(
    *,
    actor: User | None,
    address: Address,
    username: str = "",
    email: str = "",
    groups: Iterable[Group] = (),
    days: int = DAYS,
) -> NewInvitation:
    """Create a pending account, and the link by which its person signs in first.

    Without a user name the person chooses one; until then the account goes by its e-mail address.

    Raises:
        BadInput: naming the field.
    """
    if not username and not email:
        words = "Give a user name or an e-mail address."
        raise BadInput(words, fields={"username": words})
    if email:
        _check_address(email)
    wanted = list(groups)
    invitation_check(actor, wanted)
    names = sorted(group.name for group in wanted)
    user = user_create(
        username=username or _provisional_name(email), password=None, email=email, groups=names
    )
    user.is_pending = True
    user.save(update_fields=["is_pending"])
    event_record(
        "person.invited",
        actor=actor,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username, "after": {"email": email, "groups": names}},
    )
    return _invitation_write(actor, user, address, days, asks_name=not username)


@transaction.atomic
def invitation_renew(
    *, actor: User | None, user: User, address: Address, days: int = DAYS
) -> NewInvitation:
    """Replace the link of an invitation; for a user who came already it sets another password.

    Raises:
        BadInput: so many days are not possible.
        Conflict: the account is deactivated, or has no log-in.
        NotAllowed: the actor does not look after this person.
    """
    row = person_lock(actor, user)
    if row.is_service or not row.is_active:
        raise Conflict(f"{row.username} cannot sign in: activate the account first.")
    known = Invitation.objects.filter(user=row).first()
    asks_name = row.is_pending and known is not None and known.asks_name
    _record("invitation.renewed", actor, row)
    return _invitation_write(actor, row, address, days, asks_name=asks_name)


@transaction.atomic
def invitation_revoke(*, actor: User | None, user: User) -> None:
    """Revoke the link. An account to which nobody ever signed in goes, and its name is free.

    Raises:
        Conflict: something names the account already: deactivate it instead.
        NotAllowed: the actor does not look after this person.
    """
    row = person_lock(actor, user)
    Invitation.objects.filter(user=row).delete()
    _record("invitation.revoked", actor, row)
    if not row.is_pending:
        return
    try:
        row.delete()
    except ProtectedError as error:
        raise Conflict(
            f"Something names {row.username} already: deactivate the account instead."
        ) from error


def invitation_by_token(token: str) -> Invitation | None:
    """The invitation that a link belongs to, while it works.

    It works while its maker still looks after the person: a link that was made for a member of a
    tenant does not work once that member administers, nor does one whose maker left.
    """
    rows = Invitation.objects.select_related("user", "created_by")
    found = rows.filter(
        token_hash=secret_hash(token), expires_at__gt=timezone.now(), user__is_active=True
    ).first()
    if found is None or found.created_by is None:
        return found
    looked_after = people_managed_by(found.created_by)
    return found if looked_after.filter(pk=found.user_id).exists() else None


@transaction.atomic
def invitation_accept(
    *, token: str, password: str, username: str = "", first_name: str = "", last_name: str = ""
) -> User:
    """Sign in by the link: set the password and the names; the link is spent.

    Raises:
        NotAllowed: the link is unknown, used, too old or revoked.
        BadInput: naming the field.
    """
    known = Invitation.objects.filter(token_hash=secret_hash(token)).first()
    if known is not None:
        # The person first: memberships that change meanwhile are seen once the row is free.
        User.objects.select_for_update(no_key=True).get(pk=known.user_id)
        # Of two who follow one link at once, the second finds it spent.
        Invitation.objects.select_for_update().filter(pk=known.pk).first()
    row = invitation_by_token(token)
    if row is None:
        raise NotAllowed("This link was used, revoked, or is too old: ask for another one.")
    user = row.user
    if not may_use_password(user):
        raise NotAllowed("Passwords are switched off here: sign in with an identity provider.")
    names = {"first_name": first_name, "last_name": last_name} if user.is_pending else {}
    maker = row.created_by
    if user.email and maker is not None and not is_admin(maker):
        # The maker knows the link, and the address may belong to another person.
        user.is_email_unverified = True
    if row.asks_name:
        names["username"] = username
    password_check(password, user)
    person_save(user, {**names, "is_pending": False, "session_nonce": new_nonce()})
    user.set_password(password)
    user.save(update_fields=["password", "is_email_unverified"])
    row.delete()
    _record("invitation.accepted", user, user)
    permissions_change_notify([user.pk])
    return user


def _invitation_write(
    actor: User | None, user: User, address: Address, days: int, *, asks_name: bool
) -> NewInvitation:
    if not 1 <= days <= MOST_DAYS:
        words = f"A link works for 1 to {MOST_DAYS} days."
        raise BadInput(words, fields={"days": words})
    token = secrets.token_urlsafe(TOKEN_BYTES)
    link, now = address(token), timezone.now()
    is_mailed = bool(user.email) and mail_is_set_up()
    context = Invitation(user=user, token_hash=secret_hash(token)).link_context
    invitation, _ = Invitation.objects.update_or_create(
        user=user,
        defaults={
            "token_hash": secret_hash(token),
            "asks_name": asks_name,
            "created_at": now,
            "created_by": actor,
            "expires_at": now + timedelta(days=days),
            "mail_state": MailState.WAITING if is_mailed else MailState.NONE,
            "mail_detail": "",
            "mail_tried_at": None,
            "sealed_link": seal(link, context=context) if is_mailed else "",
        },
    )
    if is_mailed:
        after_commit(notify=[SEND_MAIL])
    return NewInvitation(user, invitation, link)


def _provisional_name(email: str) -> str:
    """The address itself if it can be a user name, which only the person may change."""
    name = User.normalize_username(email)
    try:
        User(username=name).clean_fields(exclude=["password"])
    except ValidationError:
        return f"invited-{secrets.token_hex(4)}"
    return name


def _check_address(email: str) -> None:
    try:
        validate_email(email)
    except ValidationError as error:
        words = "This is no e-mail address: it looks like name@example.org."
        raise BadInput(f"email: {words}", fields={"email": words}) from error
    email_check(email)


def _record(kind: str, actor: User | None, user: User) -> None:
    event_record(
        kind,
        actor=actor,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username},
    )
