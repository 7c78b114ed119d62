"""Importing this module registers every card, so that cards can be rendered by name."""

from apps.dashboard.cards import (
    logs,
    node_detail,
    node_problems,
    nodes,
    notices,
    overview,
    policies,
    policy_list,
    policy_own_usage,
    policy_pause,
    policy_tasks,
    queues,
    resources,
    task_list,
    tasks,
)

MODULES = (
    policy_tasks,
    logs,
    policy_own_usage,
    node_detail,
    node_problems,
    nodes,
    notices,
    overview,
    policies,
    policy_list,
    policy_pause,
    queues,
    resources,
    task_list,
    tasks,
)
