"""Argument lists and grammars, without a runtime."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.execution.node.arguments import ContainerPaths, docker_run, podman_run, secret_id
from apps.execution.node.environment import container_environment, is_replaced
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.specs import Spec, spec_of

PATHS = ContainerPaths("rpm-inst-t1-1-0", "inst", "/home", "/home/tasks/t1/1-0")
MEMBER = {"task_id": "t1", "generation": 1, "rank": 0}
PLAIN: dict[str, Any] = {
    "runtime": "podman",
    "image": "registry.example/team/image:1",
    "command": ["run"],
    "cpu_milli": 2500,
    "memory_mb": 1024,
    "shm_mb": 512,
    "pids": 100,
    "uid": 1000,
    "gid": 1001,
    "network": "default",
    "read_only": False,
}
BUILDERS = [pytest.param(podman_run, id="podman"), pytest.param(docker_run, id="docker")]


def spec(**changes: Any) -> Spec:
    member = {name: changes.pop(name, value) for name, value in MEMBER.items()}
    return spec_of({**member, "spec": PLAIN | changes})


def volume(source: str, target: str) -> dict[str, Any]:
    return {"source": source, "target": target, "read_only": False}


@pytest.mark.parametrize(
    "image",
    [
        "docker.io/library/busybox:latest",
        "localhost/team/train:1.0_x-y",
        "registry.example.org:5000/a__b/c--d:1",
        "registry.example.org/train@sha256:" + "0a" * 32,
    ],
)
def test_images_are_named_in_full(image: str) -> None:
    assert spec(image=image).image == image


def test_a_secret_may_have_several_lines() -> None:
    assert spec(secrets={"KEY": "one\ntwo\n"}).secrets == {"KEY": "one\ntwo\n"}


@pytest.mark.parametrize("build", BUILDERS)
def test_a_container_with_a_network_of_its_own_is_reached_at_ports_of_the_node(build: Any) -> None:
    inside = build(spec(ports=[29_500]), PATHS)
    on_host = build(spec(ports=[29_500], network="host"), PATHS)

    assert "--publish=29500:29500/tcp" in inside[: inside.index("--")]
    assert not [word for word in (*on_host, *build(spec(), PATHS)) if "publish" in word]


def test_volumes_of_an_image_are_ours_in_docker_and_none_in_podman() -> None:
    changes = {"volumes": [volume("/a", "/data")]}
    asking = spec(**changes)._replace(image_volumes=("/cache/", "/data", "/data/"))
    label = "volume-label=rpm.installation=inst,volume-label=rpm.home=/home"

    usual = set(docker_run(spec(**changes), PATHS))
    added, in_memory = (
        set(docker_run(one, PATHS)) - usual for one in (asking, asking._replace(read_only=True))
    )

    assert added == {f"--mount=type=volume,destination=/cache,{label}"}
    assert in_memory == {"--mount=type=tmpfs,destination=/cache", "--read-only"}
    assert podman_run(asking, PATHS) == podman_run(spec(**changes), PATHS)


@pytest.mark.parametrize("build", BUILDERS)
def test_limits_devices_and_labels_stand_before_the_image(build: Any) -> None:
    launch_spec = spec(devices=[{"uuid": "GPU-1", "cdi": "nvidia.com/gpu=GPU-1"}])

    arguments = build(launch_spec, PATHS)

    options = arguments[: arguments.index("--")]
    assert {
        "--name=rpm-inst-t1-1-0",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        "--cpus=2.500",
        "--memory=1024m",
        "--memory-swap=1024m",
        "--shm-size=512m",
        "--pids-limit=100",
        "--user=1000:1001",
        "--device=nvidia.com/gpu=GPU-1",
        "--label=rpm.installation=inst",
        "--label=rpm.task=t1",
        "--pull=never",
    } <= set(options)


@pytest.mark.parametrize("build", BUILDERS)
def test_a_container_is_closed_unless_its_profile_says_more(build: Any) -> None:
    usual = build(spec(), PATHS)
    open_words = {"privileged", "host", "userns", "cap-add", "device", "unconfined", "rw"}

    assert not [one for one in usual[2:] if any(word in one for word in open_words - {"host"})]
    assert not [one for one in usual if one.endswith("=host")]
    assert {"--cap-drop=all", "--security-opt=no-new-privileges", "--ipc=private"} <= set(usual)

    more = build(
        spec(
            uid=0,
            gid=0,
            allow_root=True,
            capabilities=["IPC_LOCK"],
            device_paths=["/dev/infiniband/uverbs0"],
        ),
        PATHS,
    )

    assert set(more) - set(usual) == {
        "--user=0:0",
        "--cap-add=IPC_LOCK",
        "--device=/dev/infiniband/uverbs0",
    }
    assert "--cap-drop=all" in more


@pytest.mark.parametrize("build", BUILDERS)
def test_simulated_devices_are_not_asked_of_the_runtime(build: Any) -> None:
    arguments = build(spec(devices=[{"uuid": "SIM-1", "cdi": ""}]), PATHS)

    assert not [argument for argument in arguments if argument.startswith("--device")]


@pytest.mark.parametrize("build", BUILDERS)
@given(command=st.lists(st.text(max_size=50), max_size=8))
def test_whatever_the_command_is_it_stands_behind_the_image_or_is_refused(
    build: Any, command: list[str]
) -> None:
    try:
        launch_spec = spec(command=command)
    except RequestRefusal:
        return

    arguments = build(launch_spec, PATHS)

    end = arguments.index("--")
    assert arguments[end + 1 :] == [launch_spec.image, *command]
    assert arguments[:end] == build(spec(command=[]), PATHS)[:end]


@given(source=st.text(max_size=40), target=st.text(max_size=40))
def test_a_mount_never_holds_more_than_its_four_parts(source: str, target: str) -> None:
    volume = {"source": "/" + source, "target": "/" + target, "read_only": True}
    try:
        launch_spec = spec(volumes=[volume])
    except RequestRefusal:
        return

    (mount,) = [one for one in podman_run(launch_spec, PATHS) if one.startswith("--mount")]

    assert mount == f"--mount=type=bind,source=/{source},destination=/{target},readonly"
    assert mount.count(",") == 3
    assert mount.isprintable()


@given(value=st.text(max_size=60))
def test_a_variable_is_one_line_of_the_environment_file_or_refused(value: str) -> None:
    try:
        launch_spec = spec(environment={"NAME": value})
    except RequestRefusal:
        return

    variables = container_environment(launch_spec)

    assert variables["NAME"] == value
    assert "\n" not in value
    assert "\r" not in value


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"]
)
def test_variables_that_decide_about_devices_are_the_nodes(name: str) -> None:
    assert is_replaced(name)
    assert container_environment(spec(environment={name: "mine"})).get(name) != "mine"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"image": "-v/:/host"}, id="an option as image"),
        pytest.param({"image": "a b"}, id="a space in the image"),
        pytest.param({"generation": True}, id="a boolean as number"),
        pytest.param({"cpu_milli": float("nan")}, id="not a number"),
        pytest.param({"cpu_milli": -1}, id="below zero"),
        pytest.param({"network": "container:other"}, id="somebody's network"),
        pytest.param({"ports": [80]}, id="a port that belongs to the node itself"),
        pytest.param({"ports": ["29500:22"]}, id="another port of the node"),
        pytest.param({"ports": list(range(2000, 2017))}, id="too many ports"),
        pytest.param({"command": ["x" * 2**17]}, id="an argument that the kernel refuses"),
        pytest.param({"command": ["x" * 2**16] * 20}, id="a command of more than 1 MiB"),
        pytest.param({"command": ["\ud800"]}, id="half a surrogate pair"),
        pytest.param({"command": "ls"}, id="a string as command"),
        pytest.param({"environment": {"A": 1}}, id="a number as variable"),
        pytest.param({"devices": [{"uuid": "x", "cdi": "/dev/sda"}]}, id="a path as device"),
        pytest.param({"devices": [{"uuid": "x", "cdi": "a/b=c:rwm,d"}]}, id="an odd device"),
        pytest.param({"devices": "all"}, id="a word as devices"),
        pytest.param({"uid": 0}, id="the host's root"),
        pytest.param({"capabilities": ["ALL,SYS_ADMIN"]}, id="an odd capability"),
        pytest.param({"capabilities": "ALL"}, id="a word as capabilities"),
        pytest.param({"device_paths": ["/dev/../etc"]}, id="dots in a device"),
        pytest.param({"device_paths": ["/dev/sda:/dev/sda:rwm"]}, id="a device with its rights"),
        pytest.param({"device_paths": ["/etc/shadow"]}, id="a device that is none"),
        pytest.param({"gid": 0}, id="the host's first group"),
        pytest.param({"uid": None, "gid": None}, id="whoever the image says"),
        pytest.param({"image": "dir:/etc"}, id="a folder of the node as image"),
        pytest.param({"image": "oci-archive:/tmp/x.tar"}, id="a file of the node as image"),
        pytest.param({"image": "docker://a/b"}, id="an image with its transport"),
        pytest.param({"image": "0a" * 32}, id="an image by its number"),
        pytest.param({"image": "a.b/c@sha256:0a"}, id="half a digest"),
        pytest.param({"image": "team/train:1"}, id="an image without its registry"),
        pytest.param({"image": "a.b/c"}, id="an image without tag and digest"),
        pytest.param({"image": "A.b/c:1"}, id="a registry in capitals"),
        pytest.param({"image": "docker.io/busybox:1"}, id="an image of Docker Hub without library"),
        pytest.param({"image": "containers-storage:0a12"}, id="an image by its storage"),
        pytest.param({"working_dir": "/proc/self/fd/7"}, id="a start in the kernel's folders"),
        pytest.param({"image": "a.b/" + "a/" * 300 + "b:1"}, id="a long name of an image"),
        pytest.param({"volumes": [volume("/a", "/")]}, id="a volume over everything"),
        pytest.param({"volumes": [volume("/a", "/proc/sys")]}, id="a volume over /proc"),
        pytest.param({"volumes": [volume("/a", "/run/secrets")]}, id="a volume over secrets"),
        pytest.param({"volumes": [volume("/" + "ü" * 200, "/a")]}, id="a name too long to exist"),
    ],
)
def test_a_field_out_of_its_grammar_refuses_the_request(changes: dict[str, Any]) -> None:
    with pytest.raises(RequestRefusal) as refusal:
        spec(**changes)

    assert refusal.value.code == "invalid"


def test_secrets_of_long_names_have_short_ones_in_podman_each_its_own() -> None:
    members = ("rpm-0123456789ab-01a20254-5a1c-7804-8ba5-e147c1f1f325-1-0", "x" * 80, "y" * 80)

    ids = [secret_id(member, number) for member in members for number in range(300)]

    assert max(map(len, ids)) <= 64
    assert len(set(ids)) == len(ids)
