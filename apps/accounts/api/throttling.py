"""Requests per credential; those per address are counted before authentication."""

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from apps.accounts.models import User
from apps.accounts.services.access import CredentialAccess
from apps.accounts.services.throttling import credential_admit


class CredentialThrottle(BaseThrottle):
    """Refuses requests of a credential, or of a person's session, beyond its limit."""

    def allow_request(self, request: Request, _view: object) -> bool:
        if isinstance(request.auth, CredentialAccess):
            credential_admit(str(request.auth.credential_id))
        elif isinstance(request.user, User):
            credential_admit(f"user-{request.user.pk}")
        return True
