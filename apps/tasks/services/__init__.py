"""Writes of tasks: one function per thing that a user or a program can do."""

from apps.tasks.services.bulk import tasks_enqueue_many
from apps.tasks.services.checkpoints import task_checkpoint
from apps.tasks.services.draft_returns import tasks_return_to_draft
from apps.tasks.services.lifecycle import (
    task_abort,
    task_dequeue,
    task_resume,
    task_run_again,
    task_set_priority,
)
from apps.tasks.services.queue_order import task_change_queue, task_reorder
from apps.tasks.services.submission import (
    task_change,
    task_create,
    task_enqueue,
    task_submit,
)
from apps.tasks.services.transitions import TaskTransition, tasks_announce, tasks_move

__all__ = [
    "TaskTransition",
    "task_abort",
    "task_change",
    "task_change_queue",
    "task_checkpoint",
    "task_create",
    "task_dequeue",
    "task_enqueue",
    "task_reorder",
    "task_resume",
    "task_run_again",
    "task_set_priority",
    "task_submit",
    "tasks_announce",
    "tasks_enqueue_many",
    "tasks_move",
    "tasks_return_to_draft",
]
