"""Attempts of a year that ended, and samples of two weeks, all summed up, for `usage.py`.

Reports do not read them: the bench shows that it stays so, however many there are.
"""

import os
from collections.abc import Iterator

from django.db import connection

# By default as many as fit into the time of a bench; the figures of docs are of 10 million.
ATTEMPTS = int(os.environ.get("RPM_BENCH_ATTEMPTS", "200000"))
ATTEMPTS_PER_TASK = 10
HELD = 2_500
AT_ONCE = 250_000

_TASKS = """
CREATE TEMPORARY TABLE old_task AS
SELECT gen_random_uuid() AS id, number FROM generate_series(0, %(attempts)s / %(each)s) number;
CREATE INDEX ON old_task (number);
INSERT INTO tasks_task (
    id, queue_id, owner_id, name, content, priority, is_preemptible, is_restartable, retries, tags,
    state, state_detail, generation, preemptions, failures, created_at, submitted_at, changed_at)
SELECT o.id, q.id, %(owner)s, 'old', '{"command": ["true"]}', 0, true, true, 0, '[]',
    'completed', '', %(each)s, 0, 0, now(), now(), now()
FROM old_task o
JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM policies_queue) q
    ON q.place = o.number %% (SELECT count(*) FROM policies_queue)
"""
# Ids begin with the time, as those of the product do.
_ATTEMPTS = """
INSERT INTO tasks_attempt (
    id, task_id, generation, state, queue_id, policy_id, pool_id, request, replicas, tier,
    allocated_at, started_at, ended_at, booked_until, is_booked, exit_code,
    detail, lock_token, log_bytes, log_is_cut, start_failures, stop_detail, stop_target)
SELECT (lpad(to_hex((extract(epoch FROM began) * 1000)::bigint), 12, '0') || '7000'
        || substr(md5(n::text), 1, 16))::uuid,
    o.id, n %% %(each)s + 1, 'finished', t.queue_id, q.policy_id, p.id, '{"gpu": 1000}', 1,
    'reserved', began, began, began + span, began + span, true, 0, '', '', 0, false, 0, '', ''
FROM generate_series(%(first)s, %(last)s - 1) n
CROSS JOIN LATERAL (
    SELECT now() - interval '366 days' + n * (interval '365 days' / %(attempts)s) AS began,
        (n %% 240 + 1) * interval '1 minute' AS span) moment
JOIN old_task o ON o.number = n / %(each)s
JOIN tasks_task t ON t.id = o.id
JOIN policies_queue q ON q.id = t.queue_id
CROSS JOIN LATERAL (SELECT min(id) + n %% count(*) AS id FROM policies_pool) p
"""
_HELD = """
WITH live AS (
    SELECT id, pool_id, row_number() OVER (ORDER BY id) AS place FROM tasks_attempt
    WHERE state = 'running' LIMIT %(held)s),
made AS (
    INSERT INTO tasks_member (attempt_id, rank, state, pool_id, amounts, devices, detail,
        is_acknowledged, log_offset)
    SELECT id, 0, 'running', pool_id, '{"gpu": 1000}', '[[0, 1000]]', '', false, 0 FROM live
    RETURNING id, attempt_id)
INSERT INTO tasks_helddevice (member_id, device_id, milli)
SELECT made.id, d.id, 1000 FROM made JOIN live ON live.id = made.attempt_id
JOIN (SELECT id, row_number() OVER (ORDER BY id) AS place FROM nodes_device) d USING (place)
"""
_SAMPLES = """
INSERT INTO tasks_deviceuse (
    held_id, at, sampled_ms, known_ms, busy, process_ms, energy_mj, memory_mb, is_booked)
SELECT h.id, date_trunc('hour', now()) - interval '14 days' + slot * interval '5 minutes',
    300000, 300000, 15000000, 300000, 90000000, 40000, true
FROM generate_series(%(first)s / %(held)s + 1, %(last)s / %(held)s) slot, tasks_helddevice h
"""


def _parts(values: dict[str, int]) -> Iterator[dict[str, int]]:
    """No statement may last as long as all of it does."""
    for first in range(0, ATTEMPTS, AT_ONCE):
        yield {**values, "first": first, "last": min(first + AT_ONCE, ATTEMPTS)}


def history_insert(owner: int) -> dict[str, int]:
    """Insert both; how many there are. The guards of the tables are off meanwhile."""
    values = {"attempts": ATTEMPTS, "each": ATTEMPTS_PER_TASK, "owner": owner, "held": HELD}
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(_TASKS, values)
        for part in _parts(values):
            cursor.execute(_ATTEMPTS, part)
        cursor.execute(_HELD, values)
        samples = 0
        for part in _parts(values):
            cursor.execute(_SAMPLES, part)
            samples += cursor.rowcount
        cursor.execute("SET session_replication_role = DEFAULT")
    return {"old_attempts": ATTEMPTS, "samples": samples}
