"""The main path: REST, pass, SSH, container with exactly its devices, result, page.

Two real sshd nodes with CDI devices on loopback, real podman, a real database and Redis, and a
browser that watches. The worked example: two teams, two pools of 8 GPUs, eight tasks of 4.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.end_to_end.installation import Client, Installation, add_node, installed, until
from tests.services.browser import NewPage
from tests.services.cdi import MakeDevices
from tests.services.podman import PodmanStore
from tests.services.sshd import StartSshNode

BARE_METAL = "Bare Metal Low END GPUs"
H100 = "H100 Half a Superpod"
PASSWORD = "correct-horse-battery"
# Says which devices it has, then runs until its gate opens, and ends with the code found there.
SCRIPT = """
for path in /dev/rpm-test-*; do echo "device $path"; done
echo "ready $NAME"
while [ ! -e "/volumes/gates/$NAME" ]; do sleep 0.1; done
echo "gate open"
exit "$(cat "/volumes/gates/$NAME")"
"""


@dataclass(frozen=True)
class World:
    """An installation with two nodes; `devices` are the device paths of each pool."""

    installation: Installation
    root: Client
    dev: Client
    research: Client
    gates: Path
    podman: PodmanStore
    devices: dict[str, list[str]]

    def containers(self) -> set[str]:
        return {name for name in self.podman.names() if name.startswith("rpm-")}

    def open_gate(self, name: str, *, code: int) -> None:
        """Let a task end with this code."""
        waiting = self.gates / f".{name}"
        waiting.write_text(str(code))
        waiting.rename(self.gates / name)

    def tasks(self) -> dict[str, dict[str, Any]]:
        """All tasks by name."""
        page = self.root.get("/tasks/", limit=100)
        return {task["name"]: task for task in page["results"]}

    def in_state(self, state: str) -> set[str]:
        return {name for name, task in self.tasks().items() if task["state"] == state}

    def log(self, name: str) -> str:
        path = f"/tasks/{self.tasks()[name]['id']}/logs/"
        response = self.root.http.get(path, params={"as": "text"})
        assert response.status_code == 200, response.text
        return response.text

    def seen_devices(self, name: str) -> set[str]:
        """The devices that the task itself saw in its container."""
        lines = self.log(name).splitlines()
        return {line.split()[1] for line in lines if line.startswith("device ")}


@pytest.fixture
def gates() -> Iterator[Path]:
    """A folder that containers mount; no user in them is root."""
    with tempfile.TemporaryDirectory(prefix="rpm-test-gates-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def world(
    tmp_path: Path,
    database_url: str,
    gates: Path,
    podman: PodmanStore,
    start_ssh_node: StartSshNode,
    cdi_devices: MakeDevices,
) -> Iterator[World]:
    devices = {BARE_METAL: cdi_devices("low", 8), H100: cdi_devices("high", 8)}
    with installed(tmp_path, database_url) as installation:
        root = installation.person("rita", "Admins", password=PASSWORD)
        alice = installation.person("alice", "dev", password=PASSWORD)
        ruth = installation.person("ruth", "research", password=PASSWORD)
        _configure(root, gates)
        for pool, name in ((BARE_METAL, "low"), (H100, "high")):
            add_node(installation, start_ssh_node(), podman, pool, name, devices[pool])
        paths = {pool: [device.path for device in row] for pool, row in devices.items()}
        yield World(installation, root, alice, ruth, gates, podman, paths)


def test_the_worked_example_runs_on_real_nodes_and_is_seen_to(
    world: World, new_page: NewPage
) -> None:
    page = _signed_in(new_page(), world.installation, "alice")
    names = [(f"dev-{n}", world.dev) for n in range(1, 5)]
    names += [(f"res-{n}", world.research) for n in range(1, 5)]
    # All eight must wait before the first pass, as in the example.
    world.root.patch("/configuration/", {"is_enabled": False})
    for name, client in names:
        _enqueue(client, name, world.podman.image)
    world.root.patch("/configuration/", {"is_enabled": True})

    first = {"dev-1", "dev-2", "res-1", "res-2"}
    until(lambda: _has_said_ready(world, first), what="four tasks run and say so")
    assert world.in_state("running") == first
    assert world.in_state("queued") == {"dev-3", "dev-4", "res-3", "res-4"}
    _check_devices(world, {"dev-1", "dev-2"}, BARE_METAL)
    _check_devices(world, {"res-1", "res-2"}, H100)
    assert {_reason(world, name) for name in ("dev-3", "res-3")} == {"capacity"}
    _expect_counts(page, running="2", waiting="2")

    freed = {BARE_METAL: world.seen_devices("dev-1"), H100: world.seen_devices("res-2")}
    world.open_gate("dev-1", code=0)
    world.open_gate("res-2", code=3)

    until(lambda: _has_said_ready(world, {"dev-3", "res-3"}), what="two others start")
    assert world.in_state("running") == {"dev-2", "dev-3", "res-1", "res-3"}
    assert world.seen_devices("dev-3") == freed[BARE_METAL]
    assert world.seen_devices("res-3") == freed[H100]
    tasks = world.tasks()
    assert (tasks["dev-1"]["state"], tasks["dev-1"]["exit_code"]) == ("completed", 0)
    assert (tasks["res-2"]["state"], tasks["res-2"]["exit_code"]) == ("failed", 3)
    assert world.log("dev-1").splitlines()[-1] == "gate open"
    _expect_counts(page, running="2", waiting="1")
    assert page.evaluate("window.isSamePage") is True

    world.dev.post(f"/tasks/{tasks['dev-2']['id']}/abort/")
    until(lambda: world.in_state("aborted") == {"dev-2"}, what="the aborted task is gone")
    for name in ("dev-3", "dev-4", "res-1", "res-3", "res-4"):
        world.open_gate(name, code=0)
    ended = {"dev-1", "dev-3", "dev-4", "res-1", "res-3", "res-4"}
    until(lambda: world.in_state("completed") == ended, what="everything ends")
    _expect_counts(page, running="0", waiting="0")
    until(lambda: not world.containers(), what="no container is left")


def _configure(root: Client, gates: Path) -> None:
    root.post(
        "/volumes/",
        {"name": "gates", "path": str(gates), "is_read_only": True, "scope": "everywhere"},
    )
    version = root.http.get("/configuration/draft/").headers["ETag"]
    links = [{"pool": BARE_METAL, "name": "4 GPU Low End"}, {"pool": H100}]
    document = {
        "pools": [{"name": H100, "capacity": 8}, {"name": BARE_METAL, "capacity": 8}],
        "profiles": [{"name": "4xGPU", "request": 4, "pools": links, "volumes": ["gates"]}],
    }
    root.put("/configuration/draft/", document, **{"If-Match": version})
    assert root.post("/configuration/draft/validate/", {})["errors"] == []
    root.post("/configuration/draft/provision/", {"note": "The worked example."})
    [profile] = root.get("/profiles/")["results"]
    for name in ("Dev", "Research"):
        policy = root.post(
            "/policies/",
            {"name": name, "group": name.lower(), "reserved": 8, "limit": {"gpu": 16}},
        )
        root.post(f"/policies/{policy['id']}/profiles/", {"profile": profile["name"]})


def _enqueue(client: Client, name: str, image: str) -> None:
    team = "dev" if name.startswith("dev") else "research"
    client.post(
        "/tasks/",
        {
            "name": name,
            "queue": f"{team}-4xgpu",
            "image": image,
            "command": ["/bin/sh", "-c", SCRIPT],
            "environment": {"NAME": name},
            "volumes": ["gates"],
        },
    )


def _has_said_ready(world: World, names: set[str]) -> bool:
    return names <= world.in_state("running") and all(
        f"ready {name}" in world.log(name) for name in names
    )


def _check_devices(world: World, names: set[str], pool: str) -> None:
    """Each container sees four devices of its pool's node, and no two see the same one."""
    seen = [world.seen_devices(name) for name in sorted(names)]
    assert [len(devices) for devices in seen] == [4] * len(names)
    assert set.union(*seen) == set(world.devices[pool])


def _reason(world: World, name: str) -> str:
    explained = world.root.get(f"/tasks/{world.tasks()[name]['id']}/explain/")
    return str(explained["code"])


def _signed_in(page: Page, installation: Installation, name: str) -> Page:
    page.goto(f"{installation.address}/policies/")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Dev", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Dev")
    page.evaluate("window.isSamePage = true")
    return page


def _expect_counts(page: Page, *, running: str, waiting: str) -> None:
    """The profile card of the only queue shows these numbers, without a reload."""
    card = page.get_by_label("Profile 4xGPU")
    for prefix, count in (("r-", running), ("w-", waiting)):
        expect(card.locator(f"[data-num^={prefix}]")).to_have_text(count)
