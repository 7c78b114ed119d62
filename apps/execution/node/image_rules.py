"""Which images are not started, because the runtime would act on the node as they say."""

from __future__ import annotations

from apps.execution.node import request_fields
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.images import LocalImage
from apps.execution.node.specs import Spec

# docker makes a volume on the node for each, and has no option against it.
MOST_VOLUMES = 32
# podman hands annotations of the image on to the runtime below it, which obeys some: crun keeps
# the helper's groups or takes another seccomp filter, runc sets properties of the systemd unit,
# NVIDIA's runtime gives devices, hooks write files. A later option could replace the value, but
# not all of them read an empty one as none.
OBEYED_ANNOTATIONS = (
    "cdi.k8s.io/",
    "dev.gvisor.",
    "io.containers.",
    "io.katacontainers.",
    "io.kubernetes.",
    "io.podman.",
    "krun.",
    "module.wasm.",
    "nvidia.",
    "org.criu.",
    "org.systemd.",
    "run.oci.",
)


def check(image: LocalImage, spec: Spec) -> None:
    """Refuse an image by what it asks of its runtime.

    Raises:
        RequestRefusal: it is not started; the detail names the image and what is wrong with it.
    """
    if len(image.volumes) > MOST_VOLUMES:
        count = len(image.volumes)
        raise refuse(spec, "has %d volumes, at most %d are allowed" % (count, MOST_VOLUMES))
    for name in image.annotations:
        if name.startswith(OBEYED_ANNOTATIONS) or "cdi.k8s.io/" in name:
            raise refuse(spec, "has the annotation %.80r, which the runtime obeys" % name)
    try:
        if image.working_dir and not spec.working_dir:
            request_fields.working_dir({"WORKDIR": image.working_dir}, "WORKDIR")
        # podman ignores them.
        for volume in image.volumes if spec.runtime == "docker" else ():
            request_fields.path({"VOLUME": volume}, "VOLUME")
    except RequestRefusal as refusal:
        raise refuse(spec, refusal.detail) from None


def refuse(spec: Spec, words: str) -> RequestRefusal:
    """The refusal of an image, in the words that the user will read."""
    return RequestRefusal("start_failed", "the image %s: %s" % (spec.reference, words))
