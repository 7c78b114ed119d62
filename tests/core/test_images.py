"""Names of images in full, the same for the control plane and the node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.errors import BadInput
from apps.core.images import ImageName, image_problems
from apps.execution.node import request_fields
from apps.execution.node.errors import RequestRefusal
from tests.execution.specifications.generator import IMAGES

DIGEST = "@sha256:" + "0a" * 32
PIECES = st.sampled_from(
    ["a", "b1", "A", "localhost", "docker.io", "index.docker.io", "library", "sha256", "a.b", "a_b",
     "dir", "containers-storage", "registry.example.org", "0a" * 32, "latest", "1", "5000", "", "-"]
)  # fmt: skip
NAMES = st.lists(st.tuples(PIECES, st.sampled_from("/:@.")), min_size=1, max_size=5).map(
    lambda pairs: "".join(piece + sign for piece, sign in pairs)[:-1]
) | st.builds(lambda name: f"{name}{DIGEST}", PIECES)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("team/train:1", "docker.io/team/train:1"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/team/train", "docker.io/team/train:latest"),
        ("localhost/a", "localhost/a:latest"),
        ("Registry.Example.org/a:B", "registry.example.org/a:B"),
        ("registry:5000/a:1", "registry:5000/a:1"),
        (f"a.b/c:1{DIGEST}", f"a.b/c{DIGEST}"),
        ("docker:24", "docker.io/library/docker:24"),
    ],
)
def test_names_in_full(name: str, want: str) -> None:
    assert str(ImageName.parse(name)) == want


@pytest.mark.parametrize(
    "name",
    [
        *("dir:/etc", "dir:x", "oci:x", "oci-archive:/x.tar", "docker-archive:x", "docker://a/b"),
        *("containers-storage:0a12", "containers-storage:a.b/c:1", "sha256:0a12", "0a" * 32),
        *("Team/a", "a_b.c/d", "LOCALHOST/a", "a" * 490, "", "a.b/", "a@sha256:0a"),
    ],
)
def test_what_the_runtimes_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(BadInput):
        ImageName.parse(name)

    assert list(image_problems(name, field="container.image")) == ["container.image"] * bool(name)


@given(name=NAMES | st.sampled_from(IMAGES))
def test_the_node_takes_names_in_full_and_no_others(name: str) -> None:
    try:
        full = str(ImageName.parse(name))
    except BadInput:
        full = ""
    try:
        request_fields.image({"image": name})
        is_taken = True
    except RequestRefusal:
        is_taken = False

    assert is_taken == (name == full != "")
    if full:
        assert str(ImageName.parse(full)) == request_fields.image({"image": full}) == full
