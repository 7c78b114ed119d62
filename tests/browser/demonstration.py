"""The demonstration, as `make run` starts it, with work that lasts, and how its people sign in."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from playwright.sync_api import Page

from tests.end_to_end.installation import AS_SHIPPED, Installation, installed

# Tasks of the demonstration end by themselves, and others come. These go on, and have something to
# say all the time, as whoever looks at a log expects.
LASTING = """
from apps.accounts.models import User
from apps.tasks.lifecycle.states import ENDED_STATES
from apps.tasks.models import Task
from apps.tasks.task_spec import TaskSpec
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.services.stop import task_abort
for task in Task.objects.exclude(state__in=ENDED_STATES):
    task_abort(actor=task.owner, task=task)
for number in range(8):
    task_submit(
        actor=User.objects.get(username="demo-dev"),
        spec=TaskSpec(
            name=f"lasting-{number}",
            queue="dev-4xgpu",
            command=["sh", "-c", "n=0; while sleep 5; do n=$((n + 1)); echo step $n; done"],
        ),
    )
"""


@contextmanager
def demonstration(folder: Path) -> Iterator[Installation]:
    """A whole installation on SQLite, as `make run` has it."""
    try:
        with installed(folder, f"sqlite:///{folder / 'rpm.sqlite3'}", **AS_SHIPPED) as installation:
            installation.manage("demo")
            installation.manage("demo", "--pause")
            # As many as may run at once, and as many that wait for them.
            installation.manage("shell", "--command", LASTING)
            yield installation
    finally:
        _end_tasks(folder)


def _end_tasks(folder: Path) -> None:
    """Tasks outlive whoever launched them, as they must; these end with their folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(folder) not in (process / "cmdline").read_bytes():
                continue
            children = (process / "task" / process.name / "children").read_text().split()
            for one in (*children, process.name):
                # Supervisors and what they start lead groups of their own.
                os.killpg(os.getpgid(int(one)), signal.SIGKILL)


def sign_in(site: Installation, page: Page, who: str) -> None:
    """Sign a page in as one of the demonstration's people: `admin`, `dev` or `research`."""
    path = Path(site.environment["RPM_HOME"]) / "demonstration-logins.json"
    passwords = {one["username"]: one["password"] for one in json.loads(path.read_text())}
    page.goto(f"{site.address}/sign-in/")
    page.get_by_label("Username").fill(f"demo-{who}")
    page.get_by_label("Password").fill(passwords[f"demo-{who}"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site.address}/")
