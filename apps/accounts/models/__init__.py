"""People, service accounts, their credentials and groups."""

from apps.accounts.models.credentials import Credential, SetupToken
from apps.accounts.models.identity import (
    IdentityGroup,
    IdentityProvider,
    LogInRules,
    Pkce,
    Protocol,
    UsedAssertion,
)
from apps.accounts.models.invitations import Invitation, MailState
from apps.accounts.models.scopes import Scope
from apps.accounts.models.sessions import PersonSession
from apps.accounts.models.tenants import Tenant, TenantGroup
from apps.accounts.models.users import (
    ADMINS,
    BUILT_IN_GROUPS,
    QUEUE_ADMINS,
    USERS,
    GroupInfo,
    PersonStatus,
    User,
)

__all__ = [
    "ADMINS",
    "BUILT_IN_GROUPS",
    "QUEUE_ADMINS",
    "USERS",
    "Credential",
    "GroupInfo",
    "IdentityGroup",
    "IdentityProvider",
    "Invitation",
    "LogInRules",
    "MailState",
    "PersonSession",
    "PersonStatus",
    "Pkce",
    "Protocol",
    "Scope",
    "SetupToken",
    "Tenant",
    "TenantGroup",
    "UsedAssertion",
    "User",
]
