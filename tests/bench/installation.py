"""A program of the bench, run in an installation of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.services.postgres import running_postgres
from tests.services.redis import running_redis

ROOT = Path(__file__).resolve().parents[2]


def result_of(module: str) -> Any:
    """What the module prints as its last line, as JSON; it has a PostgreSQL and a Redis."""
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
            [sys.executable, "-m", module],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])
