"""Service accounts that act for the owner of a task."""

from dataclasses import replace

from rest_framework.request import Request

from apps.accounts.api.authentication import CredentialAuthentication
from apps.accounts.models import Scope, User
from apps.accounts.services.access import ACT_FOR, CredentialAccess
from apps.core.origin import acts_for
from apps.tasks.selectors.delegation import delegating_owner


class DelegatedAuthentication(CredentialAuthentication):
    """A credential; with `X-RPM-Act-For: <task id>` its owner is the owner of that task.

    A service account that acts for a user may only do what concerns tasks: it creates no credential
    that would outlive the task, and changes no account.
    """

    def authenticate(self, request: Request) -> tuple[User, CredentialAccess] | None:
        found = super().authenticate(request)
        task_key = request.headers.get(ACT_FOR)
        if found is None or task_key is None:
            return found
        account, access = found
        owner = delegating_owner(account, task_key)
        acts_for(owner.pk, service_id=account.pk)
        return owner, replace(access, user=owner, scope=access.scope.at_most(Scope.ENQUEUE))
