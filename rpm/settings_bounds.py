"""Bounds per user, and retention times."""

from rpm import env

# Days; 0 keeps for ever. The output of a task goes with it, if not before.
KEEP_LOGS_DAYS = env.number("RPM_KEEP_LOGS_DAYS", 90, low=0, high=36_500)
KEEP_TASKS_DAYS = env.number("RPM_KEEP_TASKS_DAYS", 730, low=0, high=36_500)
KEEP_EVENTS_DAYS = env.number("RPM_KEEP_EVENTS_DAYS", 730, low=0, high=36_500)
# Of the revisions that one person made, the newest; 0 keeps all.
KEEP_REVISIONS = env.number("RPM_KEEP_REVISIONS", 1000, low=0, high=1_000_000)

# Of one user; drafts are in no queue, which would bound them.
RPM_DRAFTS_PER_PERSON = env.number("RPM_DRAFTS_PER_PERSON", 10_000, low=1, high=1_000_000)
# Of all tasks that one person has in the database; 0: no bound.
RPM_TASK_BYTES_PER_PERSON = env.number(
    "RPM_TASK_BYTES_PER_PERSON", 2_000_000_000, low=0, high=1_000_000_000_000_000
)
# In each queue, besides what the queue itself allows a person.
RPM_WAITING_PER_PERSON = env.number("RPM_WAITING_PER_PERSON", 200_000, low=1, high=10_000_000)
RPM_WAITING_PER_QUEUE = env.number("RPM_WAITING_PER_QUEUE", 1_000_000, low=1, high=10_000_000)
# Groups of equal tasks that wait in a queue: the cost of a pass follows their number.
RPM_TASK_GROUPS_PER_QUEUE = env.number("RPM_TASK_GROUPS_PER_QUEUE", 2_000, low=1, high=100_000)
