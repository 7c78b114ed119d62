"""`/metrics`: the state of this installation, for Prometheus.

Several processes answer HTTP, so nothing is counted in memory: every value is read from the
database when it is scraped, in a fixed number of queries.
"""

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from apps.allocation.models import PassState
from apps.allocation.selectors import decisions_since
from apps.core.units import BUILT_IN_KEYS, MILLI
from apps.nodes.models import Node, NodeState
from apps.nodes.selectors import capacity_by_pool, serving_processes
from apps.policies.budgets import budgets_at
from apps.policies.models import Policy, Pool, Queue
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES
from apps.tasks.selectors.attempt_sums import LiveAttemptSum, launches_since, live_attempt_sums
from apps.tasks.selectors.gpu_use import gpu_use_by_pool
from apps.usage.models import UsageRun
from apps.usage.selectors.bookings import BOOKED_WITHIN, unbooked_ends
from apps.usage.selectors.current_usage import GPU, amounts_of, reservations_of
from apps.usage.selectors.idle_attempts import idle_gpu_by_policy
from apps.usage.selectors.waiting_tasks import waiting_by_queue

log = structlog.get_logger(__name__)

# Of every kind the oldest objects have series of their own; all others share one.
MOST_NAMES = 1000
OTHER = "other"
# Amounts of different keys cannot be summed: further keys are left out.
MOST_KEYS = 20
RECENT = timedelta(hours=1)
USE_WITHIN = timedelta(minutes=10)
# The state of nodes that an administrator declared switched off.
OFF = "off"

Samples = Iterable[tuple[tuple[str, ...], float]]


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics, for the holder of the token in the settings; no session reads them."""
    if not settings.RPM_METRICS_TOKEN:
        raise Http404
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    is_known = constant_time_compare(token.strip(), settings.RPM_METRICS_TOKEN)
    if scheme.lower() != "bearer" or not is_known:
        words = "Send the metrics token of this installation: Authorization: Bearer TOKEN.\n"
        headers = {"WWW-Authenticate": 'Bearer realm="RPM metrics"'}
        return HttpResponse(words, status=401, content_type="text/plain", headers=headers)
    return HttpResponse(generate_latest(DatabaseCollector()), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class DatabaseCollector(Collector):
    """Reads all metrics; while the database reports an error only that."""

    def collect(self) -> Iterator[Metric]:
        try:
            families = list(_families())
        except DatabaseError as error:
            log.warning("metrics.unreadable", error=str(error))
            families = []
        help_text = "Whether the database answers all that metrics are read from."
        yield GaugeMetricFamily("rpm_database_up", help_text, value=bool(families))
        yield from families


def _families() -> Iterator[Metric]:
    now, connections = _database()
    yield from connections
    yield from _passes(now)
    yield from _queues(now)
    live = live_attempt_sums()
    yield from _policies(now, live)
    yield from _pools(now, live)
    yield from _nodes(now)
    yield from _launches(now, live)


def _database() -> tuple[datetime, list[Metric]]:
    """The time of the database, and its connections where it is a server."""
    if connection.vendor != "postgresql":
        return timezone.now(), []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT clock_timestamp(), numbackends, current_setting('max_connections')::int "
            "FROM pg_stat_database WHERE datname = current_database()"
        )
        now, used, most = cursor.fetchone()
    return now, [
        GaugeMetricFamily("rpm_database_connections", "Open connections to it.", value=used),
        GaugeMetricFamily(
            "rpm_database_connections_max",
            "Connections that the server accepts, for all of its databases.",
            value=most,
        ),
    ]


def _passes(now: datetime) -> Iterator[Metric]:
    state = PassState.objects.filter(id=1).first() or PassState()
    counts = {"decided": state.passes - state.idle_passes, "idle": state.idle_passes}
    passes = CounterMetricFamily(
        "rpm_passes", "Passes, by whether they decided something.", labels=["result"]
    )
    for result, count in counts.items():
        passes.add_metric([result], count)
    yield passes
    yield _gauge("rpm_pass_age_seconds", "Since the last pass.", [], _age(now, state.last_at))
    yield _gauge(
        "rpm_pass_failure_age_seconds",
        "Since the last pass that failed; absent where none ever did.",
        [],
        _age(now, state.failed_at),
    )
    yield GaugeMetricFamily(
        "rpm_pass_duration_seconds", "Of the last pass.", value=state.last_duration_ms / 1000
    )
    yield _gauge(
        "rpm_pass_decisions_last_hour",
        "Tasks that passes of the last hour placed, preempted, moved, or skipped for a change.",
        ["decision"],
        (((name,), count) for name, count in decisions_since(now - RECENT).items()),
    )


def _queues(now: datetime) -> Iterator[Metric]:
    names = _names(_live(Queue))
    waiting = waiting_by_queue()
    counts = (((name,), waiting[pk].count) for pk, name in names.items())
    oldest = (((name,), _seconds(now, waiting[pk].oldest)) for pk, name in names.items())
    yield _gauge("rpm_queue_waiting_tasks", "Tasks that wait.", ["queue"], counts)
    yield _gauge(
        "rpm_queue_oldest_wait_seconds",
        "The longest wait among them; 0 where none waits.",
        ["queue"],
        oldest,
        merge=max,
    )


def _policies(now: datetime, live: Iterable[LiveAttemptSum]) -> Iterator[Metric]:
    names = _names(_live(Policy))
    amounts = amounts_of()
    used: dict[int, Counter[str]] = {policy: Counter({GPU: 0}) for policy in amounts}
    for one in live:
        at: int | None = one.policy_id
        while at in used:
            used[at].update(one.amounts)
            at = amounts[at].parent
    limits = {policy: one.limit for policy, one in amounts.items()}
    yield _amounts("rpm_policy_used", "Held by tasks of it and of policies below it.", names, used)
    yield _amounts(
        "rpm_policy_reserved",
        "Its reservation, or the sum of those below it.",
        names,
        reservations_of(amounts),
    )
    yield _amounts("rpm_policy_limit", "Its limit; absent where there is none.", names, limits)
    yield _idle_gpus(names, {policy: one.parent for policy, one in amounts.items()})
    budgets = budgets_at(now)
    yield _gauge(
        "rpm_policy_budget_spent_ratio",
        "What is spent of its budget of this month; absent without one.",
        ["policy"],
        (
            ((name,), float(budgets[pk].spent / budgets[pk].amount))
            for pk, name in names.items()
            if pk in budgets
        ),
        merge=max,
    )


def _idle_gpus(names: Mapping[int, str], parents: Mapping[int, int | None]) -> Metric:
    idle = Counter(dict.fromkeys(parents, 0))
    for policy, gpu in idle_gpu_by_policy().items():
        at: int | None = policy
        while at is not None and at in parents:
            idle[at] += gpu
            at = parents[at]
    return _gauge(
        "rpm_policy_idle_gpus",
        "Held by tasks of it and of policies below it that have not used them for 15 minutes.",
        ["policy"],
        (((name,), idle[pk] / MILLI) for pk, name in names.items()),
    )


def _pools(now: datetime, live: Iterable[LiveAttemptSum]) -> Iterator[Metric]:
    pools = list(Pool.objects.filter(removed_at__isnull=True).order_by("pk"))
    names = _names((pool.pk, pool.name) for pool in pools)
    served = capacity_by_pool(pools)
    held: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for one in live:
        held[one.pool_id].update(one.amounts)
    capacity = {pool: one.configured for pool, one in served.items()}
    used = {pool: {key: held[pool][key] for key in keys} for pool, keys in capacity.items()}
    free = {pool: max(one.usable_gpu - held[pool][GPU], 0) for pool, one in served.items()}
    yield _amounts("rpm_pool_capacity", "What is configured.", names, capacity)
    yield _amounts("rpm_pool_used", "Held by tasks.", names, used)
    yield _gauge(
        "rpm_pool_free_gpus",
        "GPUs of healthy nodes, at most those configured, that no task holds.",
        ["pool"],
        (((name,), free[pk] / MILLI) for pk, name in names.items()),
    )
    use = gpu_use_by_pool(now - USE_WITHIN)
    yield _gauge(
        "rpm_pool_gpu_use_ratio",
        "Mean utilisation of held GPUs in the last ten minutes; absent where it is not known.",
        ["pool"],
        (((name,), use[pk]) for pk, name in names.items() if pk in use),
        merge=max,
    )


def _nodes(now: datetime) -> Iterator[Metric]:
    nodes = list(Node.objects.filter(removed_at__isnull=True).order_by("pk"))
    states = Counter(OFF if node.off_at else str(node.state) for node in nodes)
    yield _gauge(
        "rpm_nodes",
        "Nodes by state; off: an administrator declared it switched off.",
        ["state"],
        (((state,), states[state]) for state in (*NodeState.values, OFF)),
    )
    answering = {node.pk: node.last_seen_at or node.created_at for node in nodes if not node.off_at}
    names = _names((node.pk, node.name) for node in nodes if node.pk in answering)
    yield _gauge(
        "rpm_node_last_heard_seconds",
        "Since the node last answered, or was added; absent for nodes declared switched off.",
        ["node"],
        (((name,), _seconds(now, answering[pk])) for pk, name in names.items()),
        merge=max,
    )
    yield GaugeMetricFamily(
        "rpm_node_servers", "Processes that serve nodes.", value=len(serving_processes())
    )


def _launches(now: datetime, live: Iterable[LiveAttemptSum]) -> Iterator[Metric]:
    states: Counter[str] = Counter()
    for one in live:
        states[one.state] += one.count
    yield _gauge(
        "rpm_attempts",
        "Attempts that have not ended, by state.",
        ["state"],
        (((str(state),), states[state]) for state in LIVE_ATTEMPT_STATES),
    )
    launches = launches_since(now - RECENT)
    results = {"failed": launches.failed, "started": launches.started, "waiting": launches.waiting}
    yield _gauge(
        "rpm_launches_last_hour",
        "Attempts admitted in the last hour, by the result of their launch.",
        ["result"],
        (((result,), count) for result, count in results.items()),
    )
    run = UsageRun.objects.filter(id=1).first()
    if run is not None:
        yield GaugeMetricFamily(
            "rpm_usage_age_seconds",
            "Since usage was booked, and budgets and rules for idle tasks were seen to.",
            value=max((now - run.at).total_seconds(), 0),
        )
    yield GaugeMetricFamily(
        "rpm_usage_unbooked_attempts",
        "Attempts that ended over ten minutes ago, which the sums of usage do not contain yet.",
        value=unbooked_ends(now - BOOKED_WITHIN),
    )
    for name, seconds in (("mean", launches.mean_s), ("max", launches.longest_s)):
        yield GaugeMetricFamily(
            f"rpm_launch_{name}_seconds",
            "From admission to start, of attempts admitted in the last hour.",
            value=max(seconds, 0),
        )


def _gauge(
    name: str,
    help_text: str,
    labels: list[str],
    samples: Samples,
    *,
    merge: Callable[[float, float], float] = operator.add,
) -> Metric:
    """A gauge with one series per labels: a scrape with equal ones would be refused as a whole."""
    merged: dict[tuple[str, ...], float] = {}
    for key, value in samples:
        merged[key] = merge(merged[key], value) if key in merged else value
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for key, value in merged.items():
        family.add_metric(key, value)
    return family


def _amounts(
    name: str, help_text: str, names: Mapping[int, str], amounts: Mapping[int, Mapping[str, int]]
) -> Metric:
    """A gauge of thousandths per object and key, in units of the key."""
    keys = {key for one in amounts.values() for key in one}
    shown = [*BUILT_IN_KEYS, *sorted(keys - set(BUILT_IN_KEYS))][:MOST_KEYS]
    samples = [
        ((label, key), amount / MILLI)
        for pk, label in names.items()
        for key, amount in amounts.get(pk, {}).items()
        if key in shown
    ]
    kind = name.split("_")[1]
    return _gauge(name, f"{help_text} In units of the key.", [kind, "resource"], samples)


def _live(model: type[Queue] | type[Policy]) -> Iterable[tuple[int, str]]:
    rows = model._default_manager.filter(removed_at__isnull=True).order_by("pk")
    return rows.values_list("pk", "name")


def _names(rows: Iterable[tuple[int, str]]) -> dict[int, str]:
    """The label of each object by its id."""
    return {pk: name if index < MOST_NAMES else OTHER for index, (pk, name) in enumerate(rows)}


def _age(now: datetime, moment: datetime | None) -> Samples:
    return [] if moment is None else [((), _seconds(now, moment))]


def _seconds(now: datetime, moment: datetime | None) -> float:
    """Seconds since then, by the clock of the database; at least 0."""
    return 0.0 if moment is None else max((now - moment).total_seconds(), 0.0)
