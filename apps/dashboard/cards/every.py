"""Importing this module registers every card; whoever renders cards by name imports it."""

from apps.dashboard.cards import (
    logs,
    mine,
    nodes,
    overview,
    policies,
    queues,
    resources,
    tasks,
)

MODULES = (logs, mine, nodes, overview, policies, queues, resources, tasks)
