"""Which account a user of an identity provider has here, and which groups it gets."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group
from django.contrib.auth.signals import user_login_failed
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.identity.claims import ProviderIdentity
from apps.accounts.models import (
    ADMINS,
    IdentityGroup,
    IdentityProvider,
    Invitation,
    UsedAssertion,
    User,
)
from apps.accounts.selectors import administrators_left, former_names, is_break_glass
from apps.accounts.services.groups import memberships_lock, permissions_change_notify
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_save
from apps.accounts.services.tenancy import excess_groups_of, one_tenant_check
from apps.accounts.services.throttling import is_refusal_recorded
from apps.core.errors import BadInput, NotAllowed
from apps.core.origin import origin
from apps.core.recorders import event_record

_NAME = 150
# The most characters of a refusal's reason; texts of providers can be long.
_REASON = 300


def identity_accept(*, provider: IdentityProvider, identity: ProviderIdentity) -> User:
    """The person of this identity, with their groups as the provider has them.

    Found by provider and id; at the first log-in by a verified e-mail address only.

    Raises:
        NotAllowed: with a sentence that says whom to ask.
    """
    user: User | None = None
    try:
        with transaction.atomic():
            user = _linked_user(provider, identity) or _matching_user(provider, identity)
            if user is None:
                user = _create_user(provider, identity)
            _check_admitted(user)
            if provider.syncs_groups:
                memberships_sync(provider=provider, user=user, external=identity.groups)
    except NotAllowed as error:
        log_in_refusal_note(slug=provider.slug, why=error.detail, known=user)
        raise
    return user


def log_in_refusal_note(*, slug: str, why: str, known: User | None = None) -> None:
    """Record a refused log-in with a provider, like one with a wrong password.

    Args:
        slug: of the provider.
        known: the user whose account it would have been.
    """
    if not is_refusal_recorded(origin().address):
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
    """Join and leave the groups of the provider's mapping; the names of both.

    Groups outside of the mapping stay, and so do the last administrator and the break-glass one. A
    person who would be in two tenants joins nothing; one who is, after losing the administrator's
    role, leaves all but one. The log says so.
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
        leave = held - wanted - _retained_admin_group(user, held - wanted)
        join = wanted - held
        if not join and not leave:
            return [], []
        user.groups.remove(*leave)
        over = excess_groups_of(user, wanted=wanted)
        user.groups.remove(*over)
        join, leave = join - over, leave | over
        names = dict(Group.objects.filter(pk__in=join | leave).values_list("pk", "name"))
        skipped = _join(user, join) if join else ""
        wished = sorted(names[pk] for pk in join)
        joined, left = [] if skipped else wished, sorted(names[pk] for pk in leave)
        more: dict[str, Any] = {"of_too_much": sorted(names[pk] for pk in over)} if over else {}
        more |= {"skipped": wished, "why": skipped} if skipped else {}
        _record_sync(provider, user, {"joined": joined, "left": left, **more})
        permissions_change_notify([user.pk])
    return joined, left


def _record_sync(provider: IdentityProvider, user: User, facts: Mapping[str, Any]) -> None:
    event_record(
        "person.groups_synchronised",
        actor=None,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username, "reason": f"as {provider.name} says", **facts},
    )


def _join(user: User, groups: set[int]) -> str:
    """Join all of them or none; the reason why not, or empty."""
    try:
        with transaction.atomic():
            user.groups.add(*groups)
            one_tenant_check([user.pk])
    except BadInput as error:
        return error.detail
    return ""


def assertion_use(*, provider: IdentityProvider, assertion_id: str, until: datetime) -> None:
    """Mark an assertion as used.

    Raises:
        NotAllowed: it was used before.
    """
    digest = hashlib.sha256(assertion_id.encode()).hexdigest()
    UsedAssertion.objects.filter(until__lt=timezone.now()).delete()
    try:
        with transaction.atomic():
            UsedAssertion.objects.create(
                provider_slug=provider.slug, assertion_hash=digest, until=until
            )
    except IntegrityError as error:
        raise NotAllowed("This answer of the provider was used before: sign in again.") from error


def _check_admitted(user: User) -> None:
    if user.is_service:
        raise NotAllowed("Service accounts do not log in: they have credentials.")
    if not user.is_active:
        raise NotAllowed("This account is deactivated. An administrator can activate it again.")


def _linked_user(provider: IdentityProvider, identity: ProviderIdentity) -> User | None:
    row = (
        SocialAccount.objects.select_related("user")
        .filter(provider=provider.slug, uid=identity.uid)
        .first()
    )
    return row.user if row is not None else None


def _matching_user(provider: IdentityProvider, identity: ProviderIdentity) -> User | None:
    """An existing or invited user with this address, if the provider has verified it."""
    if provider.requires_verified_email and not identity.is_email_verified:
        raise NotAllowed(
            f"{provider.name} does not say that your e-mail address is verified, so nobody here "
            "can be recognised by it. Have it verified there, or ask an administrator."
        )
    if not identity.is_email_verified:
        return None
    alike = User.objects.filter(email__iexact=identity.email, is_service=False)
    # PostgreSQL compares in upper case, which several letters may share.
    found = [row for row in alike if row.email.lower() == identity.email.lower()]
    if len(found) > 1:
        raise NotAllowed(
            "Several accounts here have your e-mail address. An administrator must say which one "
            "is yours."
        )
    if not found:
        return None
    if found[0].is_email_unverified:
        # Else a user could enter a colleague's address in their own profile, and wait for it.
        raise NotAllowed(
            "An account here has your e-mail address, but nobody confirmed that it is yours. An "
            "administrator does so by saving that person's page."
        )
    _account_admit(found[0], identity)
    _link(provider, identity, found[0])
    return found[0]


def _account_admit(user: User, identity: ProviderIdentity) -> None:
    """An invited user is no longer pending, and the link of the invitation is spent."""
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


def _create_user(provider: IdentityProvider, identity: ProviderIdentity) -> User:
    if not provider.creates_people:
        raise NotAllowed(
            "You have no account here yet. Ask an administrator to invite you"
            + (f" as {identity.email}." if identity.email else ".")
        )
    if identity.email and User.objects.filter(email__iexact=identity.email).exists():
        # Not verified, else it had been matched: a second account would hide whose it is.
        raise NotAllowed(
            "Another account has this e-mail address, and your provider does not say that it is "
            "yours. Ask an administrator."
        )
    user = user_create(username=_free_name(identity), password=None, email=identity.email)
    # Else it would wait for the owner of the address to sign in with another provider.
    is_unverified = bool(identity.email) and not identity.is_email_verified
    person_save(user, {**_names(identity), "is_email_unverified": is_unverified})
    event_record(
        "person.created",
        actor=None,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username, "reason": f"first log-in with {provider.name}"},
    )
    _link(provider, identity, user)
    return user


def _link(provider: IdentityProvider, identity: ProviderIdentity, user: User) -> None:
    # Groups follow in the same transaction: always them first, then the row of the provider.
    memberships_lock()
    now = IdentityProvider.objects.select_for_update(no_key=True).filter(pk=provider.pk).first()
    if now is None or now.updated_at != provider.updated_at:
        # It may point to another provider now, whose ids are other people.
        raise NotAllowed(f"The settings of {provider.name} changed meanwhile: sign in again.")
    SocialAccount.objects.create(provider=provider.slug, uid=identity.uid, user=user)
    event_record(
        "person.linked",
        actor=user,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username, "provider": provider.name, "uid": identity.uid},
    )


def _names(identity: ProviderIdentity) -> dict[str, Any]:
    first, _, last = identity.name.partition(" ")
    return {
        "first_name": (identity.given_name or first)[:_NAME],
        "last_name": (identity.family_name or last)[:_NAME],
    }


def _free_name(identity: ProviderIdentity) -> str:
    """An unused user name, as close as possible to the provider's name of the person."""
    proposed = identity.user_name.partition("@")[0] or identity.email.partition("@")[0]
    base = re.sub(r"[^\w.+-]", "", proposed or identity.name)[:100] or "person"
    taken = set(User.objects.filter(username__istartswith=base).values_list("username", flat=True))
    folded = {name.lower() for name in taken.union(former_names(User.objects.all()))}
    names = (base if number < 2 else f"{base}-{number}" for number in range(1, len(folded) + 3))
    return next(name for name in names if name.lower() not in folded)


def _retained_admin_group(user: User, leaving: set[int]) -> set[int]:
    """The administrators' group, if this person is the last one in it or the break-glass one."""
    group = Group.objects.filter(name=ADMINS, pk__in=leaving).first()
    if group is None:
        return set()
    is_retained = is_break_glass(user) or not administrators_left(without=user)
    return {group.pk} if is_retained else set()
