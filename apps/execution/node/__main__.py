"""Runs when the folder is given to `python3`: the helper's home is the folder around it."""

from __future__ import annotations

import os
import sys

from apps.execution.node.service import serve

if __name__ == "__main__":
    serve(os.path.dirname(os.path.abspath(sys.path[0])))
