"""What the name of an image stands for on this node: its digest and its image ID."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from apps.execution.node import request_fields

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# What runtimes say of an image that is not on the node.
MISSING = (
    "image not known",
    "no such image",
    "no such object",
    "unable to find image",
    "failed to find image",
)


class LocalImage(NamedTuple):
    """Exactly one image. `digest` is what registries call it, empty where it never was in one.

    The rest is what the runtime would act on by itself: see `image_rules.py`.
    """

    image_id: str
    digest: str
    volumes: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    working_dir: str = ""


def is_missing(words: str) -> bool:
    """Whether a runtime says so that it has no such image, and not that it fails."""
    lowered = words.lower()
    return any(one in lowered for one in MISSING)


def digest_of(request: dict[str, Any], field: str) -> str:
    """An optional digest or image ID, empty when missing."""
    return request_fields.text(request, field, DIGEST) if request.get(field) else ""


def reference(image: str, digest: str) -> str:
    """The name by which runtimes and registries find exactly this digest; without one, the name.

    A tag is left out then: not every runtime takes both.
    """
    return "%s@%s" % (_repository(image), digest) if digest else image


def found_in(facts: dict[str, Any], tool: str, name: str) -> LocalImage | None:
    """The image of exactly this name, out of what the runtime answered when it was asked for it.

    None: it is another one, which the runtime takes for it.
    """
    image_id = "sha256:%s" % str(facts["Id"]).rpartition(":")[2]
    digests = _names(facts, "RepoDigests", tool)
    is_same = name in digests or name in _names(facts, "RepoTags", tool)
    if not is_same or not DIGEST.fullmatch(image_id):
        return None
    wanted = name.partition("@")[2]
    config = facts.get("Config") or {}
    return LocalImage(
        image_id,
        wanted or _digest_in(digests, facts, _repository(name)),
        tuple(sorted(config.get("Volumes") or ())),
        tuple(sorted(facts.get("Annotations") or ())),
        str(config.get("WorkingDir") or ""),
    )


def _digest_in(digests: list[str], facts: dict[str, Any], repository: str) -> str:
    """What the name was fetched as, which may be a list of images for several architectures."""
    pairs = [one.partition("@") for one in digests]
    found = {digest for name, _, digest in pairs if name == repository and DIGEST.fullmatch(digest)}
    # docker knows no digest besides these.
    return min(found & {facts.get("Digest")} or found, default="")


def _names(facts: dict[str, Any], field: str, tool: str) -> list[str]:
    names = [str(one) for one in facts.get(field) or ()]
    return [_qualified(name) for name in names] if tool == "docker" else names


def _qualified(name: str) -> str:
    """A name in full: docker leaves out the name of its hub."""
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name
    return "docker.io/%s%s" % ("" if slash else "library/", name)


def _repository(name: str) -> str:
    folder, slash, last = name.partition("@")[0].rpartition("/")
    return "%s%s%s" % (folder, slash, last.partition(":")[0])
