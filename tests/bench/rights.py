"""What rights cost a page: the same pages for an administrator and for members."""

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
    """Median milliseconds and queries of a page, per reader; `empty_ms` of a page with nothing."""

    path: str
    ms: dict[str, float]
    queries: dict[str, int]
    empty_ms: dict[str, float]


def measure() -> list[Figure]:
    """Ask all pages in turns, as each reader."""
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
            [sys.executable, "-m", "tests.bench.rights_installation"],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return [Figure(**one) for one in json.loads(done.stdout.splitlines()[-1])]
