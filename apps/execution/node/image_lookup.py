"""Looks an image up in a runtime by its name."""

from __future__ import annotations

import json
from typing import Any

from apps.execution.node import image_root, image_rules, images
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.runtimes import run_tool
from apps.execution.node.specs import Spec


class RuntimeFailure(Exception):
    """The runtime cannot tell whether an image is there; in its own words."""


def find_image(tool: str, name: str, config: dict[str, Any]) -> images.LocalImage | None:
    """The image of exactly this name; None: there is none.

    Raises:
        RuntimeFailure: that cannot be determined.
    """
    done = run_tool([tool, "image", "inspect", "--", name], config)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).decode(errors="replace").strip()
        if images.is_missing(output):
            return None
        raise RuntimeFailure(output or "%s ended with code %d" % (tool, done.returncode))
    try:
        return images.found_in(json.loads(done.stdout)[0], tool, name)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def pinned(spec: Spec, config: dict[str, Any]) -> Spec:
    """The specification with the ID of its image, by which no other one is started.

    Raises:
        RequestRefusal: the node has no image of this name, or by now another one, or one that is
            not started; or its runtime fails.
    """
    try:
        found = find_image(spec.runtime, spec.reference, config)
    except RuntimeFailure as error:
        raise RequestRefusal("start_failed", str(error)) from None
    if found is None:
        raise RequestRefusal("image_missing", "no such image: %s" % spec.reference)
    if spec.image_id not in ("", found.image_id):
        raise RequestRefusal(
            "image_missing", "no such image: %s is another one by now" % spec.reference
        )
    image_rules.check(found, spec)
    spec = spec._replace(image_id=found.image_id, image_volumes=found.volumes)
    if spec.runtime != "podman":
        return spec
    try:
        return spec._replace(working_dir=image_root.working_dir_in(found, spec, config))
    except RequestRefusal as refusal:
        raise image_rules.refuse(spec, refusal.detail) from None
