"""What an image asks of its runtime moves nothing on the node."""

import io
import tarfile
from pathlib import Path

import pytest

from apps.execution.node.errors import RequestRefusal
from apps.execution.node.image_rules import MOST_VOLUMES, OBEYED_ANNOTATIONS, check
from apps.execution.node.images import LocalImage
from apps.execution.protocol.outcomes import Answered, StartFailed
from tests.execution.node.test_arguments import spec
from tests.execution.node.test_containers import container, name_of
from tests.execution.nodes import TestedNode, installed_ssh, member_of
from tests.services.podman import PodmanStore, root_of_image
from tests.services.sshd import SshdNode

IMAGE = "localhost/rpm-test-asks:1"
INIT = b"#!/bin/sh\nmount\n"


@pytest.fixture
def node(ssh_node: SshdNode, podman: PodmanStore) -> TestedNode:
    """An sshd node with podman."""
    return installed_ssh(ssh_node, podman.environment)


def make_image(podman: PodmanStore, *changes: str) -> str:
    """The test image, with an init, and with these lines of a Dockerfile."""
    root = io.BytesIO(root_of_image())
    with tarfile.open(fileobj=root, mode="a") as archive:
        program = tarfile.TarInfo("sbin/init")
        program.mode, program.size = 0o755, len(INIT)
        archive.addfile(program, io.BytesIO(INIT))
    options = [f"--change={change}" for change in changes]
    made = podman.run("import", *options, "-", IMAGE, content=root.getvalue())
    assert made.returncode == 0, made.stderr
    return IMAGE


def build_image(podman: PodmanStore, folder: Path, *options: str, lines: str = "") -> str:
    """The test image, as `podman build` makes it with these options."""
    (folder / "Dockerfile").write_text(f"FROM {podman.image}\n{lines}\n")
    made = podman.run("build", *options, f"--tag={IMAGE}", str(folder))
    assert made.returncode == 0, made.stderr
    return IMAGE


def volumes(podman: PodmanStore) -> set[str]:
    return set(podman.run("volume", "ls", "--quiet").stdout.decode().split())


def test_volumes_of_an_image_are_not_made_and_not_writable_in_a_read_only_root(
    node: TestedNode, podman: PodmanStore
) -> None:
    image = make_image(podman, "VOLUME /etc", "VOLUME /new")
    before = volumes(podman)
    command = "touch /etc/x 2>/dev/null || echo refused; ls -d /new; echo ready; sleep 60"
    request = container(
        node, podman, "sh", "-c", command, image=image, read_only=True, allow_root=True,
        uid=0, gid=0,
    )  # fmt: skip

    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    assert volumes(podman) == before
    assert b"refused\n" in node.logs[member_of(request)]
    node.stop(member_of(request), grace_s=0)
    node.wait_for_exit(member_of(request))


def test_an_image_has_volumes_up_to_the_bound(node: TestedNode, podman: PodmanStore) -> None:
    names = [f"VOLUME /v/{number}" for number in range(MOST_VOLUMES + 1)]

    image = make_image(podman, *names[:-1])
    at_bound = node.client.launch(container(node, podman, "true", image=image))
    make_image(podman, *names)
    beyond = node.client.launch(container(node, podman, "true", image=image))

    assert isinstance(at_bound, Answered), at_bound
    assert isinstance(beyond, StartFailed), beyond
    assert image in beyond.detail
    assert "has 33 volumes, at most 32 are allowed" in beyond.detail


def test_an_image_whose_annotation_the_runtime_obeys_is_refused(
    node: TestedNode, podman: PodmanStore, tmp_path: Path
) -> None:
    image = build_image(podman, tmp_path, "--annotation=run.oci.keep_original_groups=1")

    outcome = node.client.launch(container(node, podman, "true", image=image))

    assert isinstance(outcome, StartFailed), outcome
    assert f"{image}: has the annotation 'run.oci.keep_original_groups'" in outcome.detail


@pytest.mark.parametrize("prefix", [*OBEYED_ANNOTATIONS, "nvidia.cdi.k8s.io/"])
def test_every_annotation_of_a_runtime_is_known(prefix: str) -> None:
    image = LocalImage("sha256:" + "0a" * 32, "", annotations=("a.title", f"{prefix}x"))

    with pytest.raises(RequestRefusal, match=f"has the annotation '{prefix}x'"):
        check(image, spec())


def test_annotations_that_describe_an_image_are_fine(
    node: TestedNode, podman: PodmanStore, tmp_path: Path
) -> None:
    annotations = ("org.opencontainers.image.title=x", "com.example.team=y")
    image = build_image(podman, tmp_path, *(f"--annotation={one}" for one in annotations))
    request = container(node, podman, "true", image=image)

    node.client.launch(request)

    assert node.wait_for_exit(member_of(request)).exit_code == 0


def test_a_start_in_the_kernels_folders_is_refused_also_where_the_image_asks_for_it(
    node: TestedNode, podman: PodmanStore
) -> None:
    image = make_image(podman, "WORKDIR /proc/self/cwd")

    outcome = node.client.launch(container(node, podman, "true", image=image))
    elsewhere = container(node, podman, "true", image=image, working_dir="/tmp")
    node.client.launch(elsewhere)

    assert isinstance(outcome, StartFailed), outcome
    assert f"{image}: WORKDIR: '/proc/self/cwd' is the kernel's own" in outcome.detail
    assert node.wait_for_exit(member_of(elsewhere)).exit_code == 0


def test_a_program_named_like_an_init_gets_no_folders_of_systemd(
    node: TestedNode, podman: PodmanStore
) -> None:
    image = make_image(podman, 'ENTRYPOINT ["/sbin/init"]')
    init = container(node, podman, image=image, read_only=True)
    node.client.launch(init)

    node.wait_for_exit(member_of(init))

    mounts = [line.split()[2] for line in node.logs[member_of(init)].decode().splitlines()]
    assert "/run/lock" not in mounts
    assert mounts.count("/sys/fs/cgroup/systemd") <= 1


def test_the_health_check_of_an_image_is_not_run(
    node: TestedNode, podman: PodmanStore, tmp_path: Path
) -> None:
    line = "HEALTHCHECK --interval=1s CMD true"
    image = build_image(podman, tmp_path, "--format=docker", lines=line)
    request = container(node, podman, "sleep", "60", image=image)
    node.client.launch(request)

    inspected = podman.run(
        "container", "inspect", "--format={{json .Config.Healthcheck}}", name_of(request)
    )

    assert b'"NONE"' in inspected.stdout
    node.stop(member_of(request), grace_s=0)
    node.wait_for_exit(member_of(request))
