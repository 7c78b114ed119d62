"""Credentials of an account as its page shows them, and how a program uses a new one."""

from dataclasses import dataclass

from django.db.models import Count, Q
from django.http import HttpRequest

from apps.accounts.models import Credential, User
from apps.accounts.selectors import service_accounts_listed
from apps.tasks.lifecycle.states import ADMITTED_STATES, TaskState
from apps.tasks.models import Task

PAGE = 100


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A credential with its secret, which is on this page and nowhere else."""

    credential: Credential
    secret: str
    address: str

    @property
    def environment(self) -> str:
        """Lines for a shell, a .env file or a container."""
        key = self.credential.key
        return f"RPM_URL={self.address}\nRPM_KEY={key}\nRPM_SECRET={self.secret}"

    @property
    def curl(self) -> str:
        """A first request."""
        return f"curl -u {self.credential.key}:{self.secret} {self.address}/api/v1/queues/"

    @property
    def rpmctl(self) -> str:
        """The same from the command line, in one line."""
        words = self.environment.replace("\n", " ")
        return f"{words} rpmctl list"


@dataclass(frozen=True, slots=True)
class AccountPage:
    """Service accounts by name; `after` is where the next page begins."""

    rows: tuple[User, ...]
    after: str


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks of an account wait and run."""

    waiting: int
    running: int


def new_secret(request: HttpRequest, credential: Credential, secret: str) -> NewSecret:
    """What to show of a credential that was made just now."""
    return NewSecret(credential, secret, request.build_absolute_uri("/").rstrip("/"))


def live_credentials(user: User) -> list[Credential]:
    """Those that are not revoked, the latest first."""
    return list(Credential.objects.filter(user=user, revoked_at__isnull=True))


def accounts_page(user: User, *, q: str, group: str, after: str) -> AccountPage:
    """Service accounts in a fixed number of queries."""
    rows = service_accounts_listed(user, q=q, group=group).filter(username__gt=after)
    found = list(rows[: PAGE + 1])
    return AccountPage(tuple(found[:PAGE]), found[PAGE - 1].username if len(found) > PAGE else "")


def task_counts_of(user: User) -> TaskCounts:
    """What the account has in the queues, in one query."""
    tasks = Task.objects.filter(owner=user)
    found = tasks.aggregate(
        waiting=Count("pk", filter=Q(state=TaskState.QUEUED)),
        running=Count("pk", filter=Q(state__in=ADMITTED_STATES)),
    )
    return TaskCounts(**found)
