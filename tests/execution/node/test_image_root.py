"""What the file system of an image holds leads podman nowhere on the node, and keeps it nowhere."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from apps.execution.node.errors import RequestRefusal
from apps.execution.node.image_root import ACCOUNT_BYTES, ACCOUNT_FILES, MOST_LINKS, find
from apps.execution.protocol.outcomes import Answered, StartFailed
from apps.execution.protocol.requests import VolumeMount
from tests.execution.node.test_containers import container
from tests.execution.nodes import TestedNode, installed_ssh, member_of
from tests.services.podman import PodmanStore, root_of_image
from tests.services.sshd import SshdNode

IMAGE = "localhost/rpm-test-root:1"


@pytest.fixture
def node(ssh_node: SshdNode, podman: PodmanStore) -> TestedNode:
    """An sshd node with podman."""
    return installed_ssh(ssh_node, podman.environment)


@pytest.fixture
def hosts_own(tmp_path: Path) -> Path:
    """A folder of the node that only root may write to."""
    folder = tmp_path / "hosts-own"
    folder.mkdir(mode=0o700)
    return folder


def entry(
    name: str, kind: bytes = tarfile.DIRTYPE, *, to: str = "", size: int = 0
) -> tarfile.TarInfo:
    """Something in an image."""
    found = tarfile.TarInfo(name.lstrip("/"))
    found.type, found.linkname, found.size = kind, to, size
    found.mode = 0o755
    # The numbers of /dev/zero.
    found.devmajor, found.devminor = 1, 5
    return found


def link(name: str, to: str) -> tarfile.TarInfo:
    return entry(name, tarfile.SYMTYPE, to=to)


def make_image(podman: PodmanStore, *entries: tarfile.TarInfo, workdir: str = "") -> str:
    """The test image with these entries, in place of what it has of their names."""
    root, names = io.BytesIO(), {one.name for one in entries}
    with (
        tarfile.open(fileobj=io.BytesIO(root_of_image())) as source,
        tarfile.open(fileobj=root, mode="w") as archive,
    ):
        for member in source:
            if member.name not in names:
                archive.addfile(member, source.extractfile(member) if member.isreg() else None)
        for one in entries:
            archive.addfile(one, io.BytesIO(b"\n" * one.size))
    options = [f"--change=WORKDIR {workdir}"] if workdir else []
    made = podman.run("import", *options, "-", IMAGE, content=root.getvalue())
    assert made.returncode == 0, made.stderr
    return IMAGE


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_of_the_node_that_an_image_links_to_stays_as_it_is(
    node: TestedNode, podman: PodmanStore, hosts_own: Path, read_only: bool
) -> None:
    image = make_image(podman, link("x", f"{hosts_own}"), workdir="/x/made")

    outcome = node.client.launch(container(node, podman, "true", image=image, read_only=read_only))

    assert list(hosts_own.iterdir()) == []
    assert isinstance(outcome, StartFailed), outcome
    assert f"the image {image}: WORKDIR: '/x/made' is no folder of the image" in outcome.detail


@pytest.mark.parametrize("name", ["dev", "proc", "sys"])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.REGTYPE])
def test_an_image_whose_kernel_folder_is_none_is_refused(
    node: TestedNode, podman: PodmanStore, hosts_own: Path, name: str, kind: bytes
) -> None:
    image = make_image(podman, entry(name, kind, to=f"{hosts_own}"))

    outcome = node.client.launch(container(node, podman, "true", image=image))

    assert list(hosts_own.iterdir()) == []
    assert isinstance(outcome, StartFailed), outcome
    assert f"the image {image}: /{name}: no folder" in outcome.detail


def test_a_working_dir_does_not_tell_what_is_on_the_node(
    node: TestedNode, podman: PodmanStore, hosts_own: Path
) -> None:
    (hosts_own / "file").touch()
    (hosts_own / "folder").mkdir()
    image = make_image(podman, link("x", "/"), link("y", "../../../.."))
    asked = [f"/{top}{hosts_own}/{name}" for top in "xy" for name in ("file", "folder", "none")]

    outcomes = {
        path: node.client.launch(container(node, podman, "true", image=image, working_dir=path))
        for path in asked
    }

    details = {path: one.detail for path, one in outcomes.items() if isinstance(one, StartFailed)}
    assert list(details) == asked
    assert {one.replace(f"{path!r:.80}", "IT") for path, one in details.items()} == {
        f"the image {image}: working_dir: IT is no folder of the image"
    }


@pytest.mark.parametrize("target", ["/proc", "/proc/self", "/proc/self/fd/7", "/dev", "../sys"])
def test_no_link_leads_the_start_into_the_kernels_folders(
    node: TestedNode, podman: PodmanStore, target: str
) -> None:
    image = make_image(podman, link("x", target), workdir="/x")

    by_image = node.client.launch(container(node, podman, "sh", "-c", "pwd", image=image))
    by_task = node.client.launch(
        container(node, podman, "sh", "-c", "pwd", image=image, working_dir="/x")
    )

    assert isinstance(by_image, StartFailed), by_image
    assert isinstance(by_task, StartFailed), by_task


@pytest.mark.parametrize(
    ("workdir", "want"),
    [
        pytest.param("", "/", id="none"),
        pytest.param("/opt/app/", "/opt/app", id="a folder"),
        pytest.param("/app", "/opt/app", id="an absolute link"),
        pytest.param("/opt/link/deep", "/opt/app/deep", id="a link on the way"),
        pytest.param("/opt/up", "/opt/app", id="a link that goes up and down again"),
        pytest.param("/opt/to-volume", "/volumes/data", id="a link to a volume"),
    ],
)
def test_a_task_starts_where_the_links_of_its_image_lead(
    node: TestedNode, podman: PodmanStore, tmp_path: Path, workdir: str, want: str
) -> None:
    image = make_image(
        podman,
        entry("opt"),
        entry("opt/app"),
        entry("opt/app/deep"),
        link("app", "/opt/app"),
        link("opt/link", "./app"),
        link("opt/up", "../../../opt/../opt/app"),
        link("opt/to-volume", "/volumes/data"),
        workdir=workdir,
    )
    volume = VolumeMount(str(tmp_path), "/volumes/data")
    request = container(node, podman, "sh", "-c", "pwd", image=image, volumes=(volume,))

    node.client.launch(request)

    assert node.wait_for_exit(member_of(request)).exit_code == 0
    assert node.logs[member_of(request)].decode() == f"{want}\n"


@pytest.mark.parametrize("working_dir", ["/volumes", "/volumes/data", "/volumes/data/inner"])
def test_a_task_starts_in_a_volume_and_in_the_folder_around_it(
    node: TestedNode, podman: PodmanStore, tmp_path: Path, working_dir: str
) -> None:
    (tmp_path / "inner").mkdir()
    tmp_path.chmod(0o755)
    volume = VolumeMount(str(tmp_path), "/volumes/data")
    request = container(node, podman, "sh", "-c", "pwd", working_dir=working_dir, volumes=(volume,))

    node.client.launch(request)

    assert node.wait_for_exit(member_of(request)).exit_code == 0
    assert node.logs[member_of(request)].decode() == f"{working_dir}\n"


@pytest.mark.parametrize("path", ACCOUNT_FILES)
@pytest.mark.parametrize(
    ("entries", "want"),
    [
        pytest.param([entry("IT", tarfile.FIFOTYPE)], "no plain file", id="a pipe"),
        pytest.param([entry("IT", tarfile.CHRTYPE)], "no plain file", id="a device"),
        pytest.param([entry("IT")], "no plain file", id="a folder"),
        pytest.param(
            [entry("pipe", tarfile.FIFOTYPE), link("IT", "/pipe")], "no plain file", id="a link"
        ),
        pytest.param(
            [entry("IT", tarfile.REGTYPE, size=ACCOUNT_BYTES + 1)],
            f"longer than {ACCOUNT_BYTES} bytes",
            id="a long file",
        ),
        pytest.param(
            [
                entry("pipe", tarfile.FIFOTYPE),
                link("IT", "/hop0"),
                *(link(f"hop{at}", f"/hop{at + 1}") for at in range(MOST_LINKS)),
                link(f"hop{MOST_LINKS}", "/pipe"),
            ],
            "cannot be followed in the image",
            id="a pipe behind more links than the node follows",
        ),
    ],
)
def test_an_image_with_user_names_that_podman_cannot_read_is_refused(
    node: TestedNode,
    podman: PodmanStore,
    path: str,
    entries: list[tarfile.TarInfo],
    want: str,
) -> None:
    named = [
        one.replace(name=path.lstrip("/") if one.name == "IT" else one.name) for one in entries
    ]
    image = make_image(podman, *named)

    outcome = node.client.launch(container(node, podman, "true", image=image))

    assert isinstance(outcome, StartFailed), outcome
    assert f"the image {image}: {path}: {want}" in outcome.detail


def test_an_image_has_user_names_up_to_the_bound_and_behind_links(
    node: TestedNode, podman: PodmanStore
) -> None:
    image = make_image(
        podman,
        entry("lib"),
        entry("lib/passwd", tarfile.REGTYPE, size=ACCOUNT_BYTES),
        link("etc/passwd", "/lib/passwd"),
    )
    request = container(node, podman, "true", image=image)

    outcome = node.client.launch(request)

    assert isinstance(outcome, Answered), outcome
    assert node.wait_for_exit(member_of(request)).exit_code == 0


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a/b/file", "/a/b/file"),
        ("/a/b/file/", "/a/b/file"),
        ("/a/b/file/x", None),
        ("/a/b/file/..", None),
        ("/none", None),
        ("/none/..", None),
        ("/../../a", "/a"),
        ("/root", "/"),
        ("/root/a", "/a"),
        ("/up", "/"),
        ("/here/b", "/a/b"),
        ("/circle", "refused"),
        ("/out", None),
        ("/many/b", "refused"),
    ],
)
def test_paths_lead_where_they_do_in_a_container(
    tmp_path: Path, path: str, want: str | None
) -> None:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").touch()
    links = {
        "root": "/", "up": "../../../..", "here": "a/./b/..", "circle": "circle",
        "out": f"{tmp_path}", "many": "hop0",
    }  # fmt: skip
    links |= {f"hop{number}": f"hop{number + 1}" for number in range(MOST_LINKS)}
    for name, target in (links | {f"hop{MOST_LINKS}": "a"}).items():
        (root / name).symlink_to(target)
    descriptor = os.open(root, os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))

    try:
        found = find(descriptor, path)
    except RequestRefusal:
        # podman may follow more links than the kernel does.
        assert want == "refused"
    else:
        assert (found and found.path) == want
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(descriptor)
