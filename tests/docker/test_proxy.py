"""What the proxy of docker/ lets through."""

import re
from pathlib import Path

from apps.tasks.api.parsers import BODY_BYTES, BULK_BYTES

CADDYFILE = Path(__file__).resolve().parent.parent.parent / "docker" / "Caddyfile"


def test_no_body_is_cut_by_the_proxy_that_rest_would_read() -> None:
    found = re.search(r"max_size (\d+)MB", CADDYFILE.read_text())

    assert found is not None
    assert int(found[1]) * 1_000_000 > max(BODY_BYTES, BULK_BYTES)
