"""Runs when the folder is given to `python3`: the helper's home is the folder around it."""

from __future__ import annotations

import os
import sys

HOME = os.path.dirname(os.path.abspath(sys.path[0]))
# This version's own folder: another one may take its place while this program runs.
sys.path[0] = os.path.realpath(sys.path[0])

from apps.execution.node.service import serve  # noqa: E402  # from that folder

if __name__ == "__main__":
    serve(HOME, os.path.basename(sys.path[0]).rpartition("-")[2])
