"""Requests per credential; those per address are counted before anybody is recognized."""

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from apps.accounts.models import User
from apps.accounts.services.access import Access
from apps.accounts.services.throttling import credential_admitted


class CredentialThrottle(BaseThrottle):
    """Refuses what a credential, or the session of a person, sends beyond its limit."""

    def allow_request(self, request: Request, _view: object) -> bool:
        if isinstance(request.auth, Access):
            credential_admitted(str(request.auth.credential_id))
        elif isinstance(request.user, User):
            credential_admitted(f"user-{request.user.pk}")
        return True
