"""What the name of an image stands for on this node: its digest and its number."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from apps.execution.node import checks

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Image(NamedTuple):
    """Exactly one image. `digest` is what registries call it, empty where it never was in one."""

    number: str
    digest: str


def digest_of(request: dict[str, Any], field: str) -> str:
    """An optional digest or number, empty when missing."""
    return checks.text(request, field, DIGEST) if request.get(field) else ""


def reference(image: str, digest: str) -> str:
    """The name by which runtimes and registries find exactly this digest; without one, the name.

    A tag stands aside: not every runtime takes both.
    """
    if not digest:
        return image
    folder, slash, last = image.partition("@")[0].rpartition("/")
    return "%s%s%s@%s" % (folder, slash, last.partition(":")[0], digest)
