"""Reclaiming on a real node: SSH, podman, SIGTERM, and devices that change owners.

Dev borrows both GPUs of a node, Research claims them. Each task notes in a journal on the node
which devices it has and when it releases them: the order of the lines shows whether two tasks ever
had the same one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.installation import Client, Installation, add_node, installed, until
from tests.services.cdi import MakeDevices
from tests.services.podman import PodmanStore
from tests.services.sshd import StartSshNode

POOL = "Two GPUs"
PASSWORD = "correct-horse-battery"
# Releases its devices when it is asked to stop, or when its gate opens.
SCRIPT = """
note() {
    for path in /dev/rpm-test-*; do
        echo "$1 $path $NAME $RPM_ATTEMPT" >> /volumes/shared/journal
    done
}
trap 'echo "asked to stop"; note out; exit 143' TERM
note in
while [ ! -e "/volumes/shared/$NAME" ]; do sleep 0.1; done
note out
"""


@dataclass(frozen=True)
class World:
    """An installation with one node of two GPUs."""

    installation: Installation
    root: Client
    dev: Client
    research: Client
    shared: Path
    podman: PodmanStore
    devices: list[str]

    def task(self, name: str) -> dict[str, Any]:
        page = self.root.get("/tasks/", limit=100)
        return next(task for task in page["results"] if task["name"] == name)

    def state(self, name: str) -> str:
        return str(self.task(name)["state"])

    def journal(self) -> list[list[str]]:
        return [line.split() for line in (self.shared / "journal").read_text().splitlines()]


@pytest.fixture
def world(
    tmp_path: Path,
    database_url: str,
    shared: Path,
    podman: PodmanStore,
    start_ssh_node: StartSshNode,
    cdi_devices: MakeDevices,
) -> Iterator[World]:
    devices = cdi_devices("two", 2)
    with installed(tmp_path, database_url) as installation:
        root = installation.person("rita", "Admins", password=PASSWORD)
        dev = installation.person("alice", "dev", password=PASSWORD)
        research = installation.person("ruth", "research", password=PASSWORD)
        _configure(root, shared)
        add_node(installation, start_ssh_node(), podman, POOL, "two", devices)
        paths = [device.path for device in devices]
        yield World(installation, root, dev, research, shared, podman, paths)


def test_a_borrower_stops_for_the_owner_and_runs_again_when_the_devices_are_free(
    world: World,
) -> None:
    _enqueue(world, world.dev, "borrower")
    until(lambda: len(world.journal()) == 2, what="the borrower has both devices")

    _enqueue(world, world.research, "owner")
    until(lambda: len(world.journal()) == 6, what="the devices have changed hands")
    until(lambda: world.state("owner") == "running", what="the owner runs")

    assert world.state("borrower") == "queued"
    borrower = world.task("borrower")
    first = world.root.get(f"/tasks/{borrower['id']}/attempts/")[-1]
    assert (first["generation"], first["state"], first["exit_code"]) == (1, "finished", 143)
    logs = world.root.http.get(f"/tasks/{borrower['id']}/logs/", params={"as": "text"})
    assert "asked to stop" in logs.text
    passes = world.root.get("/passes/")["results"]
    [taken] = [one for one in passes if one["preempted"]]
    assert taken["decisions"]["preempted"][0]["task"] == borrower["id"]

    (world.shared / "owner").touch()
    until(lambda: world.state("owner") == "completed", what="the owner is done")
    until(lambda: len(world.journal()) == 10, what="the borrower has its devices again")
    (world.shared / "borrower").touch()
    until(lambda: world.state("borrower") == "completed", what="the borrower is done")

    assert _turns(world) == [("borrower", "1"), ("owner", "1"), ("borrower", "2")]
    _check_one_at_a_time(world)
    until(lambda: not _containers(world), what="no container is left")


def _configure(root: Client, shared: Path) -> None:
    root.post(
        "/volumes/",
        {"name": "shared", "path": str(shared), "is_read_only": False, "scope": "everywhere"},
    )
    version = root.http.get("/configuration/draft/").headers["ETag"]
    document = {
        "pools": [{"name": POOL, "capacity": 2}],
        "profiles": [
            {"name": "2xGPU", "request": 2, "pools": [{"pool": POOL}], "volumes": ["shared"]}
        ],
    }
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "Two GPUs."})
    for name, reserved in (("Dev", 0), ("Research", 2)):
        policy = root.post(
            "/policies/", {"name": name, "group": name.lower(), "reserved": reserved}
        )
        root.post(f"/policies/{policy['id']}/profiles/", {"profile": "2xGPU"})


def _enqueue(world: World, client: Client, name: str) -> None:
    team = "research" if name == "owner" else "dev"
    client.post(
        "/tasks/",
        {
            "name": name,
            "queue": f"{team}-2xgpu",
            "image": world.podman.image,
            "command": ["/bin/sh", "-c", SCRIPT],
            "environment": {"NAME": name},
            "volumes": ["shared"],
        },
    )


def _turns(world: World) -> list[tuple[str, str]]:
    """Who had the devices, with the number of its attempt, in order."""
    turns = [(name, attempt) for word, _, name, attempt in world.journal() if word == "in"]
    return list(dict.fromkeys(turns))


def _check_one_at_a_time(world: World) -> None:
    holders: dict[str, tuple[str, str]] = {}
    for word, device, name, attempt in world.journal():
        if word == "in":
            assert device not in holders, f"{device} of {holders[device]} given to {name}"
            holders[device] = (name, attempt)
        else:
            assert holders.pop(device) == (name, attempt)
    assert not holders
    assert {device for _, device, _, _ in world.journal()} == set(world.devices)


def _containers(world: World) -> set[str]:
    return {name for name in world.podman.names() if name.startswith("rpm-")}
