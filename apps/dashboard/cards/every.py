"""Importing this module registers every card; whoever renders cards by name imports it."""

from apps.dashboard.cards import (
    holding,
    logs,
    mine,
    node_detail,
    nodes,
    overview,
    policies,
    policy_list,
    policy_pause,
    queues,
    resources,
    tasks,
)

MODULES = (
    holding,
    logs,
    mine,
    node_detail,
    nodes,
    overview,
    policies,
    policy_list,
    policy_pause,
    queues,
    resources,
    tasks,
)
