"""Asks a runtime for an image by its name."""

from __future__ import annotations

import json
from typing import Any

from apps.execution.node import images
from apps.execution.node.errors import Refusal
from apps.execution.node.runtimes import run_tool
from apps.execution.node.specs import Spec


class RuntimeFails(Exception):
    """The runtime cannot tell whether an image is there; in its own words."""


def look_up(tool: str, name: str, config: dict[str, Any]) -> images.Image | None:
    """The image of exactly this name; None: there is none.

    Raises:
        RuntimeFails: nobody can tell.
    """
    done = run_tool([tool, "image", "inspect", "--", name], config)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        if images.is_missing(said):
            return None
        raise RuntimeFails(said or "%s ended with code %d" % (tool, done.returncode))
    try:
        return images.found_in(json.loads(done.stdout)[0], tool, name)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def pinned(spec: Spec, config: dict[str, Any]) -> Spec:
    """The specification with the number of its image, by which no other one is started.

    Raises:
        Refusal: the node has no image of this name, or by now another one, or its runtime fails.
    """
    try:
        found = look_up(spec.runtime, spec.reference, config)
    except RuntimeFails as error:
        raise Refusal("start_failed", str(error)) from None
    if found is None:
        raise Refusal("image_missing", "no such image: %s" % spec.reference)
    if spec.image_id not in ("", found.number):
        raise Refusal("image_missing", "no such image: %s is another one by now" % spec.reference)
    return spec._replace(image_id=found.number)
