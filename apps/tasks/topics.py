"""The live topics of a task."""


def task_topics(
    task_id: object,
    *,
    queue_id: int | None = None,
    policy_id: int | None = None,
    pool_id: int | None = None,
) -> list[str]:
    """Names of topics, most specific first; pages subscribe to the ones they show."""
    topics = [f"task.{task_id}", "tasks"]
    if queue_id is not None:
        topics += [f"queue.{queue_id}", "queues"]
    if policy_id is not None:
        topics += [f"policy.{policy_id}", "policies", "overview"]
    if pool_id is not None:
        topics += [f"pool.{pool_id}", "nodes"]
    return topics
