"""What every page knows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from apps.access.rules.selectors import sees_rules
from apps.accounts.models import User
from apps.accounts.selectors import is_admin, manages_people, may_enter_admin


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """One entry of the navigation; `is_here` marks the part of the site one is in."""

    label: str
    icon: str
    href: str
    is_here: bool


# Name of the page, label, icon, only for administrators.
PageEntry = tuple[str, str, str, bool]

_PAGES: tuple[PageEntry, ...] = (
    ("overview", "Overview", "gauge", False),
    ("task_list", "Tasks", "list-todo", False),
    ("queue_list", "Queues", "list-ordered", False),
    ("policy_list", "Policies", "users", False),
    ("resources", "Resources", "workflow", False),
    ("node_list", "Nodes", "server", True),
    ("usage", "Usage", "chart-column", False),
)
# A phone shows four entries and "More".
_ON_PHONE = 4
# Pages about people, permissions and secrets, in the order of their tabs; "Settings" leads to the
# first one that the user may see.
_SETTINGS: tuple[PageEntry, ...] = (
    ("account", "Account", "user", False),
    ("mfa_index", "Second factor", "smartphone", False),
    ("notice_rule_list", "Notices", "bell", False),
    ("credential_list", "Credentials", "key-round", False),
    ("vault_list", "Vaults", "lock", False),
    ("person_list", "People", "users", True),
    ("service_account_list", "Service accounts", "bot", True),
    ("access_list", "Access", "shield", True),
    ("tenant_list", "Tenants", "building-2", True),
    ("identity_list", "Identity", "fingerprint", True),
    ("audit_list", "Audit", "scroll-text", True),
)
# Pages for administrators that administrators of a tenant see too, for their tenant.
_OF_TENANTS = frozenset({"person_list"})
# Pages for administrators that users with a manage permission see too.
_OF_MANAGERS = frozenset({"access_list"})
_SETTINGS_AT = "/settings/"


def site(request: HttpRequest) -> dict[str, Any]:
    """Name of the installation, and which parts of the navigation this person sees."""
    user = getattr(request, "user", None)
    sees_all = user is not None and is_admin(user)
    may_administrate = user is not None and may_enter_admin(user)
    entries = _entries(_PAGES, request.path, is_admin=sees_all)
    looks_after = user is not None and manages_people(user)
    open_pages = _OF_TENANTS if looks_after else frozenset()
    # Only these pages need to know whether the user manages something.
    if isinstance(user, User) and request.path.startswith(_SETTINGS_AT) and sees_rules(user):
        open_pages |= _OF_MANAGERS
    settings_entries = _entries(_SETTINGS, request.path, is_admin=sees_all, open_pages=open_pages)
    if looks_after:
        # The others come to theirs by the menu of their account.
        is_here = any(entry.is_here for entry in settings_entries)
        entries.append(
            NavigationEntry("Settings", "sliders-horizontal", reverse("person_list"), is_here)
        )
    more = entries[_ON_PHONE:]
    if may_administrate:
        more.append(
            NavigationEntry("Administration", "settings", reverse("admin:index"), is_here=False)
        )
    return {
        "installation_name": settings.RPM_INSTALLATION_NAME,
        "viewer_is_admin": sees_all,
        "viewer_may_enter_admin": may_administrate,
        "navigation": entries,
        "navigation_phone": entries[:_ON_PHONE],
        "navigation_more": more,
        "settings_entries": settings_entries,
    }


def _entries(
    known: Iterable[PageEntry],
    path: str,
    *,
    is_admin: bool,
    open_pages: frozenset[str] = frozenset(),
) -> list[NavigationEntry]:
    entries = []
    for name, label, icon, needs_admin in known:
        if needs_admin and not is_admin and name not in open_pages:
            continue
        href = reverse(name)
        is_here = path == href if href == "/" else path.startswith(href)
        entries.append(NavigationEntry(label, icon, href, is_here))
    return entries
