"""What beat notifies workers of, and how often."""

from datetime import timedelta

from rpm import env

PASS_EVERY_S = env.number("RPM_PASS_EVERY_S", 5, low=1, high=300)
CELERY_BEAT_SCHEDULER = "rpm.beat:SteadyScheduler"
CELERY_BEAT_SCHEDULE = {
    "pass": {"task": "allocation.run_pass", "schedule": timedelta(seconds=PASS_EVERY_S)},
    "seal": {"task": "events.seal_audit", "schedule": timedelta(seconds=5)},
    "retention": {"task": "tasks.remove_old", "schedule": timedelta(minutes=5)},
    "revisions": {"task": "configuration.remove_old", "schedule": timedelta(minutes=5)},
    "mail": {"task": "accounts.send_mail", "schedule": timedelta(minutes=1)},
    "notices": {"task": "notices.make", "schedule": timedelta(seconds=5)},
    "notice-mail": {"task": "notices.send_mail", "schedule": timedelta(minutes=1)},
    "old-notices": {"task": "notices.remove_old", "schedule": timedelta(hours=1)},
    "usage": {"task": "usage.book", "schedule": timedelta(minutes=1)},
    "sessions": {"task": "accounts.remove_sessions", "schedule": timedelta(hours=1)},
    "demonstration": {"task": "rpm.keep_demonstration", "schedule": timedelta(seconds=30)},
}
