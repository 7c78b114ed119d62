"""For whom a service account acts."""

from apps.accounts.models import User
from apps.accounts.selectors import tenants_of
from apps.core.errors import Conflict, NotAllowed
from apps.tasks.selectors.seen import task_seen
from apps.tasks.states import TaskState

# A draft was given to nobody yet, and what has ended needs nobody.
ALIVE = frozenset(TaskState) - {
    TaskState.DRAFT,
    TaskState.COMPLETED,
    TaskState.FAILED,
    TaskState.ABORTED,
}


def owner_acted_for(account: User, task_key: str) -> User:
    """The owner of the task, marked as acted for by `account`.

    Whoever is acted for administers nothing (`apps.accounts.selectors.group_names`).

    Raises:
        NotAllowed: the account may not act for others, or not for this one.
        NotFound: there is no such task, or the account may not know of it.
        Conflict: the task is not alive.
    """
    if not account.is_service or not account.can_act_for_owners:
        raise NotAllowed("This account may not act for the owners of tasks.")
    task = task_seen(account, task_key)
    if TaskState(task.state) not in ALIVE:
        raise Conflict(f"Task {task.pk} is {task.get_state_display()}: nobody acts for it.")
    owner = task.owner
    if owner.is_service:
        raise NotAllowed("Nobody acts for a service account.")
    if not owner.is_active:
        raise NotAllowed("The owner of this task is deactivated.")
    owner.acted_by_id = account.pk
    if not may_stand_for(account, owner):
        raise NotAllowed("This account may not act for the owner of this task.")
    return owner


def may_stand_for(account: User, owner: User) -> bool:
    """Whether a service account of a tenant would reach no other one by acting for the owner."""
    own = tenants_of(account)
    return not own or tenants_of(owner) <= own
