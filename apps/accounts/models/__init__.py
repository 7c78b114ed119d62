"""People, service accounts, their credentials and groups."""

from apps.accounts.models.credentials import Credential, SetupToken
from apps.accounts.models.users import ADMINS, BUILT_IN_GROUPS, QUEUE_ADMINS, USERS, GroupInfo, User

__all__ = [
    "ADMINS",
    "BUILT_IN_GROUPS",
    "QUEUE_ADMINS",
    "USERS",
    "Credential",
    "GroupInfo",
    "SetupToken",
    "User",
]
