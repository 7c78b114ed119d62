"""Gangs over two real nodes: they start whole or not at all, meet, and end together.

Each node has a podman of its own and fetches the image from a registry of its own under the same
name, so that one of them can be slow, or have nothing.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.database_queries import Ask, asking
from tests.end_to_end.installation import Client, Installation, installed, until
from tests.services.podman import PodmanStore, podman_store
from tests.services.registry import Registry, running_registry
from tests.services.requirements import need
from tests.services.sshd import StartSshNode

PASSWORD = "correct-horse-battery"
NAMES = ("one", "two")
ALLOWED = {
    "runtimes": ["podman"],
    "mounts": [],
    "capabilities": [],
    "devices": [],
    "host_network": True,
    "root": False,
}
# The first member listens at the meeting port, the others call it until it answers. A member that
# is asked to stop notes that, saves for a while, and notes that it has saved.
SCRIPT = """
note() { echo "$*" >> /volumes/shared/journal; }
trap 'note stopping "$RPM_RANK"; sleep 1; note saved "$RPM_RANK"; exit 143' TERM
note began "$RPM_RANK" of "$RPM_WORLD_SIZE"
if [ "$RPM_RANK" = 0 ]; then
    # With an input that ends, it would say so at once, and who calls could leave before speaking.
    mkfifo /tmp/silence
    note heard "$(nc -l -p "$RPM_MASTER_PORT" 3<> /tmp/silence <&3)"
else
    until echo "$RPM_RANK" | nc "$RPM_MASTER_ADDR" "$RPM_MASTER_PORT"; do sleep 0.2; done
fi
while [ ! -e "/volumes/shared/fail-$RPM_RANK" ]; do sleep 0.1; done
exit 3
"""


@dataclass(frozen=True)
class World:
    """An installation with two nodes of one GPU, each with its podman and its registry."""

    installation: Installation
    root: Client
    alice: Client
    shared: Path
    stores: tuple[PodmanStore, ...]
    registries: tuple[Registry, ...]
    ask: Ask

    def enqueue(self) -> str:
        """A gang of two; its id."""
        made = self.alice.post(
            "/tasks/",
            {
                "name": "gang",
                "queue": "team-gang",
                "image": f"{self.registries[0].host}/team/train:1",
                "command": ["/bin/sh", "-c", SCRIPT],
                "volumes": ["shared"],
            },
        )
        return str(made["id"])

    def task(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.alice.get(f"/tasks/{task_id}/")
        return found

    def journal(self) -> list[str]:
        return (self.shared / "journal").read_text().splitlines()

    def containers(self) -> list[str]:
        found = [name for store in self.stores for name in store.names()]
        return [name for name in found if name.startswith("rpm-")]

    def held(self) -> int:
        """Rows of the ledger, of members and of devices, that are not released."""
        members = "SELECT count(*) FROM tasks_member WHERE released_at IS NULL"
        devices = "SELECT count(*) FROM tasks_helddevice WHERE released_at IS NULL"
        return int(self.ask(members)) + int(self.ask(devices))


@pytest.fixture
def world(
    tmp_path: Path, database_url: str, shared: Path, start_ssh_node: StartSshNode
) -> Iterator[World]:
    need("podman")
    need("busybox")
    with ExitStack() as stack:
        stores = tuple(stack.enter_context(podman_store()) for _ in NAMES)
        registries = tuple(stack.enter_context(running_registry()) for _ in NAMES)
        installation = stack.enter_context(installed(tmp_path, database_url))
        root = installation.person("rita", "Admins", password=PASSWORD)
        alice = installation.person("alice", "team", password=PASSWORD)
        configure(root, shared)
        for name, store, registry in zip(NAMES, stores, registries, strict=True):
            path = tmp_path / f"registries-{name}.conf"
            path.write_text(
                f'[[registry]]\nprefix = "{registries[0].host}"\n'
                f'location = "{registry.host}"\ninsecure = true\n'
            )
            variables = {**store.environment, "CONTAINERS_REGISTRIES_CONF": str(path)}
            node = start_ssh_node()
            node.allowlist.write_text(json.dumps(ALLOWED | {"mounts": [str(shared)]}))
            installation.manage(
                *("node", "add", name, "--pool", "Pair", "--address", node.address),
                *("--port", str(node.port), "--user", node.user, "--key", str(node.key_path)),
                *("--fingerprint", node.host_key.fingerprint, "--runtime", "podman"),
                *("--state-dir", node.home, "--simulated-gpus", "1"),
                *[f"--env={key}={value}" for key, value in variables.items()],
            )
        ask = stack.enter_context(asking(database_url))
        yield World(installation, root, alice, shared, stores, registries, ask)


def test_a_gang_begins_when_all_have_its_image_meets_and_ends_together(world: World) -> None:
    for registry in world.registries:
        registry.push("team/train", "1", word="gang")
    fast, slow = world.registries
    slow.is_open.clear()

    gang = world.enqueue()
    ready = "SELECT count(*) FROM tasks_member WHERE ready_at IS NOT NULL"
    until(lambda: world.ask(ready) == 1, what="one node has the image")
    until(lambda: "Fetching" in members_detail(world), what="the other one fetches it")

    assert fast.asked
    assert (world.containers(), world.journal()) == ([], [])
    assert world.ask("SELECT count(*) FROM tasks_member WHERE launched_at IS NOT NULL") == 0
    slow.is_open.set()

    until(lambda: len(world.journal()) == 3, what="both began, and have met")
    assert sorted(world.journal()) == ["began 0 of 2", "began 1 of 2", "heard 1"]
    until(lambda: world.task(gang)["state"] == "running", what="the gang runs")
    assert len(world.containers()) == 2

    (world.shared / "fail-1").touch()

    until(lambda: world.task(gang)["state"] == "failed", what="the gang ends")
    assert world.journal()[3:] == ["stopping 0", "saved 0"]
    assert world.task(gang)["exit_code"] == 3
    until(lambda: not world.containers(), what="no container is left")
    assert world.held() == 0


def test_a_gang_of_which_one_node_cannot_get_the_image_starts_nowhere_and_says_why(
    world: World,
) -> None:
    world.registries[0].push("team/train", "1", word="gang")

    gang = world.enqueue()
    until(lambda: world.task(gang)["state"] == "failed", what="it fails")

    assert (world.journal(), world.containers()) == ([], [])
    words = world.task(gang)["state_detail"]
    assert f"Image {world.registries[0].host}/team/train:1" in words
    assert "manifest unknown" in words
    assert world.held() == 0
    # The capacity is free: as soon as both nodes have the image, the next one runs.
    world.registries[1].push("team/train", "1", word="gang")
    world.enqueue()
    until(lambda: len(world.journal()) == 3, what="the next gang has met")


def members_detail(world: World) -> str:
    # There is one that fetches, and one that waits for it.
    detail = world.ask("SELECT max(detail) FROM tasks_member WHERE ready_at IS NULL")
    return str(detail or "")


def configure(root: Client, shared: Path) -> None:
    root.post(
        "/volumes/",
        {"name": "shared", "path": str(shared), "is_read_only": False, "scope": "everywhere"},
    )
    version = root.http.get("/configuration/draft/").headers["ETag"]
    profile = {
        "name": "Gang",
        "request": 1,
        "replicas": 2,
        "pools": [{"pool": "Pair"}],
        "volumes": ["shared"],
        "host_network": True,
    }
    document = {"pools": [{"name": "Pair", "capacity": 2}], "profiles": [profile]}
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "Gangs."})
    policy = root.post("/policies/", {"name": "Team", "group": "team", "reserved": 2})
    root.post(f"/policies/{policy['id']}/profiles/", {"profile": "Gang"})
