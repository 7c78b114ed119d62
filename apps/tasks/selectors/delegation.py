"""The owner for whom a service account acts."""

from apps.accounts.models import User
from apps.accounts.selectors import tenants_of
from apps.core.errors import Conflict, NotAllowed
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.selectors.visibility import is_shown_alone, visible_task

# A draft is not submitted yet, and an ended task needs no service account.
ALIVE = frozenset(TaskState) - {
    TaskState.DRAFT,
    TaskState.COMPLETED,
    TaskState.FAILED,
    TaskState.ABORTED,
}


def delegating_owner(account: User, task_key: str) -> User:
    """The owner of the task, marked as acted for by `account`.

    The owner administers nothing meanwhile (`apps.accounts.selectors.group_names`).

    Raises:
        NotAllowed: the account may not act for others, or not for this one; or a rule lets it read
            this task alone.
        NotFound: there is no such task, or the account may not know of it.
        Conflict: the task is a draft or has ended.
    """
    if not account.is_service or not account.can_act_for_owners:
        raise NotAllowed("This account may not act for the owners of tasks.")
    task = visible_task(account, task_key)
    if is_shown_alone(task):
        raise NotAllowed("This account may read this task alone: it does not see its queue.")
    if TaskState(task.state) not in ALIVE:
        state = task.get_state_display()
        raise Conflict(f"Task {task.pk} is {state}: no account can act for its owner.")
    owner = task.owner
    if owner.is_service:
        raise NotAllowed("No account can act for a service account.")
    if not owner.is_active:
        raise NotAllowed("The owner of this task is deactivated.")
    owner.acted_by_id = account.pk
    if not can_act_for(account, owner):
        raise NotAllowed("This account may not act for the owner of this task.")
    return owner


def can_act_for(account: User, owner: User) -> bool:
    """Whether acting for the owner would reach no tenant but the service account's own."""
    own = tenants_of(account)
    return not own or tenants_of(owner) <= own
