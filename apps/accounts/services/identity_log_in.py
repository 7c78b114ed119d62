"""Who somebody from an identity provider is here, and which groups that brings."""

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group
from django.contrib.auth.signals import user_login_failed
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.identity.claims import Identity
from apps.accounts.models import (
    ADMINS,
    IdentityGroup,
    IdentityProvider,
    Invitation,
    SeenAssertion,
    User,
)
from apps.accounts.selectors import administrators_left, is_break_glass
from apps.accounts.services.groups import memberships_lock, rights_changed
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_save
from apps.accounts.services.tenancy import groups_of_too_much, one_tenant_check
from apps.accounts.services.throttling import refusal_is_kept
from apps.core.errors import BadInput, NotAllowed
from apps.core.origin import origin
from apps.core.recording import event_record

_NAME = 150
# Of why a log-in was refused; what providers say themselves can be long.
_REASON = 300


def identity_accept(*, provider: IdentityProvider, identity: Identity) -> User:
    """The person whom this identity lets in, with their groups as the provider has them.

    Found by provider and id; for the first time by a verified e-mail address, never by another one.

    Raises:
        NotAllowed: with a sentence that says whom to ask.
    """
    user: User | None = None
    try:
        with transaction.atomic():
            user = _linked(provider, identity) or _matched(provider, identity)
            if user is None:
                user = _created(provider, identity)
            _check_may_come(user)
            if provider.syncs_groups:
                memberships_sync(provider=provider, user=user, external=identity.groups)
    except NotAllowed as error:
        log_in_refused(slug=provider.slug, why=error.detail, known=user)
        raise
    return user


def log_in_refused(*, slug: str, why: str, known: User | None = None) -> None:
    """Tell the log of a log-in with a provider that was refused, as of a wrong password.

    Args:
        slug: of the provider.
        known: whose account it would have been.
    """
    if not refusal_is_kept(origin().address):
        return
    name = IdentityProvider.objects.filter(slug=slug).values_list("name", flat=True).first()
    user_login_failed.send(
        sender=__name__,
        credentials={"username": known.username if known is not None else ""},
        provider=name or slug,
        reason=why[:_REASON],
    )


def memberships_sync(
    *, provider: IdentityProvider, user: User, external: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Join and leave the groups that the provider's mapping speaks of; names of both.

    Groups that it does not speak of stay, and so do the last administrator and the break-glass one.
    Where the person would be of two tenants they join nothing; where they are, no administrator any
    more, they leave all but one. The log says so.
    """
    theirs = frozenset(external)
    rows = IdentityGroup.objects.filter(provider=provider)
    pairs = list(rows.values_list("external_name", "group_id"))
    spoken_of = {group_id for _name, group_id in pairs}
    wanted = {group_id for name, group_id in pairs if name in theirs}
    if wanted == set(user.groups.filter(pk__in=spoken_of).values_list("pk", flat=True)):
        return [], []
    with transaction.atomic():
        memberships_lock()
        held = set(user.groups.filter(pk__in=spoken_of).values_list("pk", flat=True))
        leave = held - wanted - _kept_administrator(user, held - wanted)
        join = wanted - held
        if not join and not leave:
            return [], []
        user.groups.remove(*leave)
        over = groups_of_too_much(user, wanted=wanted)
        user.groups.remove(*over)
        join, leave = join - over, leave | over
        names = dict(Group.objects.filter(pk__in=join | leave).values_list("pk", "name"))
        skipped = _join(user, join) if join else ""
        joined = [] if skipped else sorted(names[pk] for pk in join)
        left = sorted(names[pk] for pk in leave)
        event_record(
            "person.groups_synchronised",
            actor=None,
            object_type="user",
            object_id=user.pk,
            data={
                "name": user.username,
                "reason": f"as {provider.name} says",
                "joined": joined,
                "left": left,
                **({"of_too_much": sorted(names[pk] for pk in over)} if over else {}),
                **(
                    {"skipped": sorted(names[pk] for pk in join), "why": skipped} if skipped else {}
                ),
            },
        )
        rights_changed([user.pk])
    return joined, left


def _join(user: User, groups: set[int]) -> str:
    """Join all of them or none; why not, or empty."""
    try:
        with transaction.atomic():
            user.groups.add(*groups)
            one_tenant_check([user.pk])
    except BadInput as error:
        return error.detail
    return ""


def assertion_use(*, provider: IdentityProvider, assertion_id: str, until: datetime) -> None:
    """Let an assertion count this once.

    Raises:
        NotAllowed: it was used before.
    """
    digest = hashlib.sha256(assertion_id.encode()).hexdigest()
    SeenAssertion.objects.filter(until__lt=timezone.now()).delete()
    try:
        with transaction.atomic():
            SeenAssertion.objects.create(
                provider_slug=provider.slug, assertion_hash=digest, until=until
            )
    except IntegrityError as error:
        raise NotAllowed("This answer of the provider was used before: sign in again.") from error


def _check_may_come(user: User) -> None:
    if user.is_service:
        raise NotAllowed("Service accounts do not log in: they have credentials.")
    if not user.is_active:
        raise NotAllowed("This account is deactivated. An administrator can activate it again.")


def _linked(provider: IdentityProvider, identity: Identity) -> User | None:
    row = (
        SocialAccount.objects.select_related("user")
        .filter(provider=provider.slug, uid=identity.uid)
        .first()
    )
    return row.user if row is not None else None


def _matched(provider: IdentityProvider, identity: Identity) -> User | None:
    """Somebody who is here or invited, by an address that is theirs for sure."""
    if provider.requires_verified_email and not identity.is_email_verified:
        raise NotAllowed(
            f"{provider.name} does not say that your e-mail address is verified, so nobody here "
            "can be recognised by it. Have it verified there, or ask an administrator."
        )
    if not identity.is_email_verified:
        return None
    alike = User.objects.filter(email__iexact=identity.email, is_service=False)
    # PostgreSQL compares capitals, and more letters than one have the same.
    found = [row for row in alike if row.email.lower() == identity.email.lower()]
    if len(found) > 1:
        raise NotAllowed(
            "Several accounts here have your e-mail address. An administrator must say which one "
            "is yours."
        )
    if not found:
        return None
    if found[0].is_email_own_word:
        # Else one could write a colleague's address into one's own profile, and wait for it.
        raise NotAllowed(
            "An account here has your e-mail address, but nobody confirmed that it is yours. An "
            "administrator does so by saving that person's page."
        )
    _come_in(found[0], identity)
    _link(provider, identity, found[0])
    return found[0]


def _come_in(user: User, identity: Identity) -> None:
    """Whoever was invited is here now, and the link of the invitation is spent."""
    if not user.is_pending or not user.is_active:
        return
    # Groups follow in the same transaction.
    memberships_lock()
    invitation = Invitation.objects.filter(user=user).first()
    changes = {"is_pending": False, **({} if str(user) != user.username else _names(identity))}
    if invitation is not None and invitation.asks_name:
        changes["username"] = _free_name(identity)
    person_save(user, changes)
    Invitation.objects.filter(user=user).delete()


def _created(provider: IdentityProvider, identity: Identity) -> User:
    if not provider.creates_people:
        raise NotAllowed(
            "You have no account here yet. Ask an administrator to invite you"
            + (f" as {identity.email}." if identity.email else ".")
        )
    if identity.email and User.objects.filter(email__iexact=identity.email).exists():
        # Not verified, else it had been matched: a second account would hide whose it is.
        raise NotAllowed(
            "Somebody here has this e-mail address, and your provider does not say that it is "
            "yours. Ask an administrator."
        )
    user = user_create(username=_free_name(identity), password=None, email=identity.email)
    # Else it would wait for whose address it is, to come in with another provider.
    is_own_word = bool(identity.email) and not identity.is_email_verified
    person_save(user, {**_names(identity), "is_email_own_word": is_own_word})
    event_record(
        "person.created",
        actor=None,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username, "reason": f"first log-in with {provider.name}"},
    )
    _link(provider, identity, user)
    return user


def _link(provider: IdentityProvider, identity: Identity, user: User) -> None:
    # Groups follow in the same transaction: always them first, then the row of the provider.
    memberships_lock()
    now = IdentityProvider.objects.select_for_update(no_key=True).filter(pk=provider.pk).first()
    if now is None or now.updated_at != provider.updated_at:
        # Maybe it points at another provider, whose ids are other people.
        raise NotAllowed(f"The settings of {provider.name} changed meanwhile: sign in again.")
    SocialAccount.objects.create(provider=provider.slug, uid=identity.uid, user=user)
    event_record(
        "person.linked",
        actor=user,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username, "provider": provider.name, "uid": identity.uid},
    )


def _names(identity: Identity) -> dict[str, Any]:
    first, _, last = identity.name.partition(" ")
    return {
        "first_name": (identity.given_name or first)[:_NAME],
        "last_name": (identity.family_name or last)[:_NAME],
    }


def _free_name(identity: Identity) -> str:
    """A user name that nobody has, as close as can be to what the provider calls the person."""
    told = identity.user_name.partition("@")[0] or identity.email.partition("@")[0]
    base = re.sub(r"[^\w.+-]", "", told or identity.name)[:100] or "person"
    taken = set(User.objects.filter(username__istartswith=base).values_list("username", flat=True))
    folded = {name.lower() for name in taken}
    names = (base if number < 2 else f"{base}-{number}" for number in range(1, len(folded) + 3))
    return next(name for name in names if name.lower() not in folded)


def _kept_administrator(user: User, leaving: set[int]) -> set[int]:
    """The group of administrators, where this is the last one, or who alone has a password."""
    group = Group.objects.filter(name=ADMINS, pk__in=leaving).first()
    if group is None:
        return set()
    is_kept = is_break_glass(user) or not administrators_left(without=user)
    return {group.pk} if is_kept else set()
