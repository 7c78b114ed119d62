"""Makes notices from the event log: nothing lost, nothing twice.

One row says how far the log is read. It is locked while notices are made, and changes with them in
one transaction: a process that is killed has done nothing, and the next one repeats it.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Q, Window
from django.db.models.functions import RowNumber

from apps.accounts.services.mail import mail_is_set_up
from apps.core import clock
from apps.core.notifications import after_commit
from apps.events.models import Event
from apps.notices.models import Notice, NoticeCursor, NoticeKind, NoticeRule
from apps.notices.services.event_horizon import event_writers, horizon_now, last_event_id
from apps.notices.services.rule_matches import KIND_OF_EVENT, TaskFact, rules_for
from apps.notices.topics import notices_topic
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task

# Of one user: the newest ones, for this long.
MOST_NOTICES = 1000
KEPT_FOR = timedelta(days=90)
# Read in one transaction.
EVENTS_AT_ONCE = 1000
# Made in one transaction, and those of one event more.
NOTICES_AT_ONCE = 10_000
# A run ends after this time; the next one continues.
RUN_S = 20.0
# Events of transactions that have not ended are looked for again.
PAUSE_S = 0.05
PAUSES = 10
# Waiting tasks are looked for so often: it reads all that wait.
WAITS_EVERY = timedelta(seconds=30)

Made = dict[int, deque[Notice]]


def notices_make(*, run_s: float = RUN_S) -> int:
    """Make the notices of all events that are there; returns how many events were read.

    Where another process makes notices at this moment, it does that.
    """
    until, read, pauses = time.monotonic() + run_s, 0, 0
    while time.monotonic() < until:
        found = _step()
        if found is None:
            break
        read += found
        if found:
            pauses = 0
            continue
        # All is read, but for what transactions insert that have not ended yet.
        pauses += 1
        if pauses > PAUSES or not NoticeCursor.objects.exclude(horizon_writers=[]).exists():
            break
        time.sleep(PAUSE_S)
    return read


def notice_cursor_ensure() -> None:
    """Begin to read the log here, where nobody has yet."""
    NoticeCursor.objects.get_or_create(
        id=1,
        defaults={
            "event_id": last_event_id(),
            "waits_until": clock.now(),
        },
    )


def notices_remove_old(*, now: datetime | None = None) -> int:
    """Remove notices that are too old; returns how many there were."""
    if now is None and clock.is_in_doubt():
        return 0
    removed, _ = Notice.objects.filter(at__lt=(now or clock.now()) - KEPT_FOR).delete()
    return removed


def _step() -> int | None:
    """Read some events; returns how many, None where another process reads them."""
    notice_cursor_ensure()
    with transaction.atomic():
        rows = NoticeCursor.objects.filter(id=1)
        if connection.features.has_select_for_update_skip_locked:
            rows = rows.select_for_update(skip_locked=True)
        cursor = rows.first()
        if cursor is None:
            return None
        events = _events(cursor)
        made, cursor.event_id = _of_events(events, until=cursor.event_id)
        now = clock.now()
        if cursor.waits_until + WAITS_EVERY <= now and not clock.is_in_doubt():
            _add(made, _of_waits(cursor.waits_until, now))
            cursor.waits_until = now
        _store(made)
        cursor.save()
        return len(events)


def _events(cursor: NoticeCursor) -> list[Event]:
    """The next events, as far as none can appear among them any more; moves the cursor."""
    if cursor.horizon_id <= cursor.event_id:
        horizon = horizon_now()
        cursor.horizon_id, cursor.horizon_writers = horizon.event_id, sorted(horizon.writers)
    elif cursor.horizon_writers:
        open_now = event_writers().intersection(cursor.horizon_writers)
        cursor.horizon_writers = sorted(open_now)
    if cursor.horizon_id <= cursor.event_id:
        # Of an event that is not there yet nobody knows a number: nothing to wait for.
        cursor.horizon_writers = []
        return []
    if cursor.horizon_writers:
        return []
    after = Event.objects.filter(pk__gt=cursor.event_id, pk__lte=cursor.horizon_id)
    events = list(after.order_by("pk").defer("actor", "acted_by")[:EVENTS_AT_ONCE])
    is_rest = len(events) < EVENTS_AT_ONCE
    cursor.event_id = cursor.horizon_id if is_rest else events[-1].pk
    return events


def _of_events(events: Iterable[Event], *, until: int) -> tuple[Made, int]:
    """By user, the notices of these events, and up to which event: `until`, or an earlier one.

    One event may concern everybody: after `NOTICES_AT_ONCE` notices the rest is the next step's.
    """
    made: Made = defaultdict(lambda: deque(maxlen=MOST_NOTICES))
    count = 0
    facts = _facts([one for one in events if one.kind in KIND_OF_EVENT])
    index = rules_for([fact for _, fact in facts])
    for event, fact in facts:
        if count >= NOTICES_AT_ONCE:
            return made, event.pk - 1
        code = event.data.get("exit_code")
        for user, rules in index.matching(fact).items():
            made[user].append(
                Notice(
                    user_id=user,
                    at=fact.at,
                    kind=fact.kind,
                    task_id=fact.task_id,
                    event_id=event.pk,
                    event_kind=event.kind,
                    data={"exit_code": code} if code is not None else {},
                    is_mail_due=_is_mailed(rules),
                )
            )
            count += 1
    return made, until


def _facts(events: list[Event]) -> list[tuple[Event, TaskFact]]:
    """The events of tasks that are there. An array has notices, and its elements have none."""
    tasks = Task.objects.filter(pk__in={one.object_id for one in events}, array__isnull=True)
    owners = {str(pk): (pk, owner) for pk, owner in tasks.values_list("pk", "owner_id")}
    found = []
    for one in events:
        if one.object_id in owners:
            kind, (pk, owner) = KIND_OF_EVENT[one.kind], owners[one.object_id]
            fact = TaskFact(kind, one.pk, one.at, pk, owner, one.queue_id, one.policy_id)
            found.append((one, fact))
    return found


def _of_waits(since: datetime, now: datetime) -> Iterator[Notice]:
    """The notices of tasks that have waited for the time of a rule since then."""
    rules = NoticeRule.objects.filter(wait_minutes__isnull=False).order_by()
    limits = sorted({one or 0 for one in rules.values_list("wait_minutes", flat=True)})
    for minutes in limits:
        yield from _of_limit(minutes, since, now)


def _of_limit(minutes: int, since: datetime, now: datetime) -> Iterator[Notice]:
    after, until = (at - timedelta(minutes=minutes) for at in (since, now))
    began = {"__gt": after, "__lte": until}
    moved = Q(**{f"waiting_since{name}": at for name, at in began.items()})
    others = Q(**{f"submitted_at{name}": at for name, at in began.items()})
    tasks = Task.objects.filter(
        moved | Q(waiting_since__isnull=True) & others,
        state=TaskState.QUEUED,
        ineligible_code="",
        array__isnull=True,
        array_count__isnull=True,
    )
    rows = tasks.order_by("pk").values_list("pk", "owner_id", "queue_id", "queue__policy_id")
    block: list[TaskFact] = []
    for pk, owner, queue, policy in rows.iterator(chunk_size=EVENTS_AT_ONCE):
        block.append(TaskFact(NoticeKind.WAITING, None, now, pk, owner, queue, policy))
        if len(block) == EVENTS_AT_ONCE:
            yield from _of_waiting(block, minutes)
            block = []
    yield from _of_waiting(block, minutes)


def _of_waiting(facts: list[TaskFact], minutes: int) -> Iterator[Notice]:
    index = rules_for(facts)
    for fact in facts:
        for user, rules in index.matching(fact).items():
            if mine := [rule for rule in rules if rule.wait_minutes == minutes]:
                yield Notice(
                    user_id=user,
                    at=fact.at,
                    kind=fact.kind,
                    task_id=fact.task_id,
                    event_kind="task.waiting",
                    data={"minutes": minutes},
                    is_mail_due=_is_mailed(mine),
                )


def _is_mailed(rules: Iterable[NoticeRule]) -> bool:
    """Whether it goes by e-mail: not later, where there is no mail server now."""
    return mail_is_set_up() and any(rule.by_email for rule in rules)


def _add(made: Made, notices: Iterable[Notice]) -> None:
    for one in notices:
        made[one.user_id].append(one)


def _store(made: Made) -> None:
    """Store them, and keep of each user the newest."""
    if not made:
        return
    Notice.objects.bulk_create(
        [one for those in made.values() for one in those],
        batch_size=EVENTS_AT_ONCE,
    )
    place = Window(RowNumber(), partition_by="user_id", order_by="-id")
    numbered = Notice.objects.filter(user__in=list(made)).annotate(place=place)
    excess = numbered.filter(place__gt=MOST_NOTICES).order_by().values_list("pk", flat=True)
    Notice.objects.filter(pk__in=list(excess)).delete()
    after_commit(topics=[notices_topic(user) for user in made])
