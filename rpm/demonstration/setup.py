"""Loads the demonstration: pools, profiles, teams with people, two nodes, history, first tasks."""

import json
import os
import secrets
from dataclasses import asdict
from datetime import timedelta
from decimal import Decimal

import msgspec
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import ADMINS, USERS, GroupInfo, User
from apps.accounts.services.people import user_create
from apps.configuration.selectors import draft_document
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_create
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queues import profile_connect
from apps.core.errors import Conflict
from apps.execution.services.node_registration import SimulatedGpus, node_add
from apps.nodes.models import Runtime, Transport
from apps.policies.models import Pool, Profile
from apps.usage.selectors.bookings import hour_of
from apps.usage.selectors.rates import first_unbooked_hour
from apps.usage.services.rates import rate_create
from rpm.demonstration.catalog import (
    ACTIVE,
    ADMIN,
    BARE_METAL,
    GROUPS,
    H100,
    MARK,
    PEOPLE,
    POOLS,
    PRICES,
    PROFILES,
    TEAMS,
)
from rpm.demonstration.history import history_load
from rpm.demonstration.live_tasks import tasks_replenish
from rpm.demonstration.presence import DemonstrationLogin, logins_path

RATES_SINCE = timedelta(days=40)


def load() -> list[DemonstrationLogin]:
    """Make all of it, with what its teams did in the last days, and enqueue the first tasks."""
    with transaction.atomic():
        logins = _people()
        _resources()
        _teams()
    _keep(logins)
    for pool, prefix, model in ((H100, "h100", "H100 80GB"), (BARE_METAL, "bare-metal", "L4")):
        node_add(
            name=f"demo-{prefix}-01",
            pool=Pool.objects.get(name=pool, removed_at__isnull=True),
            actor=None,
            simulated=SimulatedGpus(count=8, model=f"{model} (simulated)"),
            transport=Transport.LOCAL,
            runtime=Runtime.PROCESS,
            allows_process=True,
            state_dir=str(settings.HOME.file(f"node-{prefix}")),
            labels={MARK: ACTIVE},
        )
    _rates()
    history_load(now=timezone.now())
    tasks_replenish()
    return logins


def _resources() -> None:
    draft = draft_document()
    document = msgspec.structs.replace(
        draft, pools=(*draft.pools, *POOLS), profiles=(*draft.profiles, *PROFILES)
    )
    draft_write(document=document, actor=None)
    document_provision(actor=None, note="The demonstration.")


def _rates() -> None:
    """Its GPUs have cost this since before its history, or since what is not summed up yet."""
    earliest, begins = first_unbooked_hour(), hour_of(timezone.now()) - RATES_SINCE
    for name, price in PRICES.items():
        pool = Pool.objects.get(name=name, removed_at__isnull=True)
        valid_from = max(filter(None, (earliest, begins)))
        rate_create(actor=None, price=Decimal(price), valid_from=valid_from, pool=pool)


def _people() -> list[DemonstrationLogin]:
    logins = [_person(ADMIN, ADMINS, "administrator")]
    for team in TEAMS:
        group, _ = Group.objects.get_or_create(name=GROUPS[team])
        GroupInfo.objects.update_or_create(
            group=group, defaults={"description": f"The {team} team, for trying out."}
        )
        first, *others = PEOPLE[team]
        logins.append(_person(first, group.name, f"member of {team}"))
        for name in others:
            _person(name, group.name, "")
    return logins


def _person(name: str, group: str, role: str) -> DemonstrationLogin:
    """A new user, or one of an earlier demonstration with a new password; without a role none."""
    login = DemonstrationLogin(name, secrets.token_urlsafe(9), role)
    known = User.objects.filter(username=name).first()
    if known is None:
        user_create(username=name, password=login.password if role else None, groups=[group])
    else:
        groups = set(known.groups.values_list("name", flat=True)) - {USERS}
        if groups != {group}:
            raise Conflict(
                f"The user {name} was made by no demonstration, or has got permissions since: "
                "rename this user first."
            )
        if role:
            known.set_password(login.password)
        known.is_active = True
        known.save()
    return login


def _teams() -> None:
    for team in TEAMS:
        policy = policy_create(
            actor=None,
            name=team,
            group=Group.objects.get(name=GROUPS[team]),
            reserved={"gpu": 8},
            limit={"gpu": 16},
            description=f"What the {team} team may use.",
        )
        for profile in PROFILES:
            profile_connect(
                actor=None,
                policy=policy,
                profile=Profile.objects.get(name=profile.name, removed_at__isnull=True),
            )


def _keep(logins: list[DemonstrationLogin]) -> None:
    descriptor = os.open(logins_path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        json.dump([asdict(login) for login in logins], handle)
