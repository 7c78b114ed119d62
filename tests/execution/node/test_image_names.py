"""What podman takes a name for: the name in full stands for one image, whatever else is there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apps.core.errors import BadInput
from apps.core.images import ImageName
from apps.execution.node import image_lookup
from apps.execution.node.images import LocalImage, found_in
from apps.execution.protocol.outcomes import ImageMissing, NodeRefusal
from tests.execution.node.test_containers import container
from tests.execution.nodes import TestedNode, installed_ssh
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode

# Of other groups, on the node.
THERE = (
    "registry.teamb.example/private/model:1",
    "registry.teamb.example:5000/pytorch/pytorch:latest",
    "localhost/docker.io/library/busybox:latest",
)
WORDS = st.sampled_from(
    ["private", "model", "pytorch", "library", "busybox", "docker.io", "index.docker.io",
     "localhost", "registry.teamb.example", "registry.teamb.example:5000", "Registry.TeamB.example",
     "containers-storage:model", "{number}", "new"]
)  # fmt: skip
NAMES = st.builds(
    lambda words, tag: "/".join(words) + tag,
    st.lists(WORDS, min_size=1, max_size=3),
    st.sampled_from(["", ":1", ":latest", ":2"]),
)
ONE_STORE = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def number(podman: PodmanStore) -> Iterator[str]:
    """The images are there; the number that all of them have."""
    podman.run("tag", podman.image, *THERE)
    yield podman.run("image", "inspect", "--format={{.Id}}", "--", podman.image).stdout.decode()
    podman.run("untag", podman.image, *THERE)


def parsed(name: str) -> str:
    try:
        return str(ImageName.parse(name))
    except BadInput:
        return ""


@ONE_STORE
@given(name=NAMES)
@example(name="private/model:1")
@example(name="containers-storage:model")
@example(name="{number}")
@example(name="busybox")
@example(name="registry.teamb.example/private/model:1")
def test_a_name_is_no_other_image_of_the_node(podman: PodmanStore, number: str, name: str) -> None:
    config = {"environment": podman.environment}
    full = parsed(name.format(number=number[:12]))

    found = image_lookup.find_image("podman", full, config) if full else None

    assert (found is not None) == (full in THERE)
    if full:
        # podman alone comes to the same, without the comparison.
        there = podman.run("image", "inspect", "--", full).returncode == 0
        assert there == (full in THERE)


def test_a_runtime_that_fails_is_not_an_image_that_is_missing(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text(
        "#!/bin/sh\necho 'Error: default OCI runtime \"nope\" not found' >&2; exit 125\n"
    )
    program.chmod(0o755)
    config = {"environment": {"PATH": f"{tmp_path}:/usr/bin:/bin"}}

    with pytest.raises(image_lookup.RuntimeFailure, match='"nope" not found'):
        image_lookup.find_image("podman", "docker.io/library/debian:12", config)


@ONE_STORE
@given(name=NAMES)
def test_podman_keeps_a_name_in_full_as_it_is(podman: PodmanStore, name: str) -> None:
    full = parsed(name.format(number="0a12"))
    if not full:
        return
    podman.run("tag", podman.image, full)

    names = podman.run("image", "inspect", '--format={{join .RepoTags " "}}', "--", full)

    podman.run("untag", podman.image, full)
    assert full in names.stdout.decode().split()


def test_a_launch_takes_only_the_image_that_was_found_under_the_name(
    ssh_node: SshdNode, podman: PodmanStore, number: str
) -> None:
    node: TestedNode = installed_ssh(ssh_node, podman.environment)

    short = node.client.launch(container(node, podman, "true", image="private/model:1"))
    other = node.client.launch(
        container(node, podman, "true", image=THERE[0], image_id="sha256:" + "0a" * 32)
    )
    elsewhere = node.client.launch(
        container(node, podman, "true", image="docker.io/private/model:1")
    )

    assert isinstance(short, NodeRefusal)
    assert isinstance(other, ImageMissing)
    assert isinstance(elsewhere, ImageMissing)


def test_docker_names_its_hub_shortly() -> None:
    facts = {
        "Id": "sha256:" + "0a" * 32,
        "RepoTags": ["busybox:1", "team/train:1", "a.b/c:1"],
        "RepoDigests": ["team/train@sha256:" + "0b" * 32],
    }

    names = ["docker.io/library/busybox:1", "docker.io/team/train:1", "a.b/c:1", "a.b/busybox:1"]
    found = [found_in(facts, "docker", name) for name in names]

    number = "sha256:" + "0a" * 32
    digest = "sha256:" + "0b" * 32
    assert found == [
        LocalImage(number, ""),
        LocalImage(number, digest),
        LocalImage(number, ""),
        None,
    ]
