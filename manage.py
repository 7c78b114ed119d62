#!/usr/bin/env python
"""Django's command line for this installation."""

import os
import re
import sys

from django.core.management import execute_from_command_line

from apps.core.notifications import notifier_close
from apps.core.origin import origin_of_command

# What these do, they do because of others who ask, or of the clock.
SERVING = frozenset({"up", "serve_nodes", "serve_passes", "runserver"})


def say_who_calls(arguments: list[str]) -> None:
    """For the audit log: which command it is; of what follows, only a plain verb."""
    words = arguments[1:2]
    if arguments[2:] and re.fullmatch("[a-z][a-z_-]{1,20}", arguments[2]):
        words.append(arguments[2])
    if words and words[0] not in SERVING:
        origin_of_command(" ".join(words))


if __name__ == "__main__":
    # Whatever is written here, no other account of the machine reads it.
    os.umask(0o077)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rpm.settings")
    say_who_calls(sys.argv)
    try:
        execute_from_command_line(sys.argv)
    finally:
        notifier_close()
