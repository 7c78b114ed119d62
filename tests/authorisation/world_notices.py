"""Rules of notices, and notices: also of tasks that their user may not see (any more)."""

from datetime import UTC, datetime
from typing import Any

from apps.notices.models import Notice, NoticeSettings
from apps.notices.services.rules import notice_rule_create

AT = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
# Of each place, another team whose tasks its people do not see.
FOREIGN = {"a": "t", "b": "t", "t": "a"}


def notices_make_all(world: Any) -> None:
    """For the owner and the mate of each team."""
    for place, foreign in FOREIGN.items():
        for owner in ("owner", "mate"):
            person = world.people[f"{place}-{owner}"]
            rule = notice_rule_create(user=person, scope="own", kinds=["failed"])
            world.keep(rule, "notice-rule", place, owner)
            settings = NoticeSettings.objects.create(user=person)
            world.objects["notice-settings", place, owner] = settings
            for kind, where in (("ended", place), ("running", foreign), ("draft", foreign)):
                task = world.one(kind, where, owner)
                notice = Notice.objects.create(
                    user=person, at=AT, kind="failed", event_kind="task.failed", task_id=task.pk
                )
                if where == place:
                    world.keep(notice, "notice", place, owner)
