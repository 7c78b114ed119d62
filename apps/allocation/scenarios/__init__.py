"""Scenario files: a snapshot, and what should come of it, as one JSON object.

For tests, for `manage.py simulate`, and for bug reports; the format is described in
tests/scenarios/README.md.
"""

from apps.allocation.scenarios.parser import read_scenario, snapshot_from_json
from apps.allocation.scenarios.writer import snapshot_to_json

__all__ = ["read_scenario", "snapshot_from_json", "snapshot_to_json"]
