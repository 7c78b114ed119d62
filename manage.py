#!/usr/bin/env python
"""Django's command line for this installation."""

import os
import sys

from django.core.management import execute_from_command_line

from apps.core.doorbell import hang_up

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rpm.settings")
    try:
        execute_from_command_line(sys.argv)
    finally:
        hang_up()
