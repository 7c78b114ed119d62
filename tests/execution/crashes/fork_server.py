"""Starts processes of the control plane that can be killed: imported once, forked many times.

Reads requests from standard input, one JSON object a line, and answers each with the process id of
the child that carries it out. Nothing here asks the database, so a child begins as a new process
does, only without the seconds that imports take.

    {"do": "serve", "crash_at": NAME}                           `manage.py serve_passes`
    {"do": "call", "crash_at": NAME, "calls": [[NAME, {}], ...], "answer": PATH}
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import django

from tests.services.ports import end_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rpm.settings")
django.setup()

from django.core.management import call_command  # noqa: E402 - settings come first

from apps.core import crash_points  # noqa: E402
from rpm.management.commands import serve_passes  # noqa: E402
from tests.execution.crashes import calls  # noqa: E402


def main() -> None:
    # Children that have ended are not kept for anybody.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _say({"ready": serve_passes.__name__})
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(request)
        _say({"pid": pid})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _child(request: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    end_with_parent()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    crash_points._wanted = crash_points.wanted_point(request["crash_at"])
    try:
        if request["do"] == "serve":
            call_command("serve_passes")
        else:
            _call(request["calls"], Path(request["answer"]))
    except BaseException:  # noqa: BLE001 - the last frame of this process: whatever it was, say it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _call(wanted: list[tuple[str, dict[str, Any]]], answer: Path) -> None:
    found: dict[str, Any] = {"results": []}
    try:
        for name, arguments in wanted:
            found["results"].append(getattr(calls, name)(**arguments))
    except Exception:  # noqa: BLE001 - sent to the caller
        found["error"] = traceback.format_exc()
    temporary = answer.with_suffix(".tmp")
    temporary.write_text(json.dumps(found))
    temporary.rename(answer)


if __name__ == "__main__":
    main()
