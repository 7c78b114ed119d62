"""The command line of this installation, to be copied from pages and messages."""

import shlex
import sys
from pathlib import Path

from django.conf import settings


def manage_command() -> str:
    """How its administrator calls `manage.py` on the server: `rpm-manage` with systemd."""
    if settings.SERVICE_ACCOUNT:
        return "rpm-manage"
    return shlex.join([sys.executable, str(Path(settings.BASE_DIR) / "manage.py")])
