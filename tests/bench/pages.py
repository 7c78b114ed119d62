"""The overview with 200 policies and 100,000 tasks, beside a page with nothing on it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.services.postgres import running_postgres
from tests.services.redis import running_redis

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Figure:
    """Median answer times in milliseconds, and queries of the overview."""

    policies: int
    tasks: int
    overview_ms: float
    empty_ms: float
    few: int
    many: int


def measure() -> Figure:
    """Ask both pages in turns."""
    with (
        running_postgres(durable=True) as cluster,
        running_redis() as redis,
        TemporaryDirectory() as home,
    ):
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "rpm.settings",
            "DATABASE_URL": cluster.url(),
            "REDIS_URL": redis.url(),
            "RPM_HOME": home,
            "RPM_LOG_LEVEL": "ERROR",
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.pages_installation"],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return Figure(**json.loads(done.stdout.splitlines()[-1]))
