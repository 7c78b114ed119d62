"""A hundred random secrets go through vaults and tasks, and stay where they belong.

Real sshd, podman, database and Redis. The tasks prove that they read them; then everything that
somebody else could look at is searched. Keys are rotated and old ones dropped in between.
"""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from psycopg import sql

from tests.end_to_end.installation import Client, Installation, installed, until
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode, StartSshNode

PASSWORD = "correct-horse-battery"
# Each task writes what it read to a folder of the test's own, and all of it into its log.
SCRIPT = """
for path in /run/secrets/S*; do cat "$path"; echo; done >> "/volumes/shared/read-$NAME"
cat "$RPM_VAULT_FILE" > "/volumes/shared/file-$NAME"
cat /run/secrets/*; env
echo "ready $FROM_VAULT $PROXY"
while [ ! -e /volumes/shared/gate ]; do sleep 0.1; done
"""


@dataclass(frozen=True)
class World:
    """An installation with one node, and the secrets, by the names of their files."""

    installation: Installation
    root: Client
    alice: Client
    node: SshdNode
    podman: PodmanStore
    shared: Path
    of_vaults: dict[str, str]
    of_tasks: dict[str, str]
    # In vaults that are off, and in a draft that is never enqueued.
    unused: dict[str, str]

    @property
    def given(self) -> set[str]:
        return {*self.of_vaults.values(), *self.of_tasks.values()}

    @property
    def canaries(self) -> set[str]:
        return {*self.given, *self.unused.values()}

    def enqueue(self, name: str) -> str:
        made = self.alice.post(
            "/tasks/",
            {
                "name": name,
                "queue": "team-one",
                "image": self.podman.image,
                "command": ["/bin/sh", "-c", SCRIPT],
                "environment": {"NAME": name, "PROXY": "the task's"},
                "secrets": self.of_tasks,
                "volumes": ["shared"],
            },
        )
        return str(made["id"])

    def is_ready(self, task_id: str) -> bool:
        answer = self.alice.http.get(f"/tasks/{task_id}/logs/", params={"as": "text"})
        return "ready from-vault enforced" in answer.text


@dataclass
class Processes:
    """What any account of the machine may see of processes, sampled again and again."""

    seen: set[bytes] = field(default_factory=set)

    @contextmanager
    def watched(self) -> Iterator[None]:
        is_over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(is_over,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _watch(self, is_over: threading.Event) -> None:
        while not is_over.wait(0.02):
            for folder in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        self.seen.add((folder / name).read_bytes())
                    except OSError:
                        continue


@pytest.fixture
def world(
    tmp_path: Path,
    database_url: str,
    shared: Path,
    podman: PodmanStore,
    start_ssh_node: StartSshNode,
) -> Iterator[World]:
    shared.chmod(0o777)
    fresh = [secrets.token_hex(16) for _ in range(100)]
    # podman makes each secret by itself: what a task gets is kept to what starts soon.
    of_vaults = {f"SV{number}": value for number, value in enumerate(fresh[:20])}
    of_tasks = {f"ST{number}": value for number, value in enumerate(fresh[20:30])}
    unused = {f"SU{number}": value for number, value in enumerate(fresh[30:])}
    with installed(tmp_path, database_url) as installation:
        root = installation.person("rita", "Admins", password=PASSWORD)
        alice = installation.person("alice", "team", password=PASSWORD)
        configure(root, shared)
        node = start_ssh_node()
        installation.manage(
            *("node", "add", "one", "--pool", "Pool", "--address", node.address),
            *("--port", str(node.port), "--user", node.user, "--key", str(node.key_path)),
            *("--fingerprint", node.host_key.fingerprint, "--runtime", "podman"),
            *("--state-dir", node.home, "--simulated-gpus", "2"),
            *[f"--env={key}={value}" for key, value in podman.environment.items()],
        )
        yield World(installation, root, alice, node, podman, shared, of_vaults, of_tasks, unused)


def test_secrets_of_vaults_and_tasks_are_found_nowhere(world: World) -> None:
    make_vaults(world)
    processes = Processes()

    with processes.watched():
        first = world.enqueue("first")
        until(lambda: world.is_ready(first), what="the first task has read it", within_s=240)
        world.installation.manage("keys", "rotate")
        world.installation.manage("keys", "prune")
        second = world.enqueue("second")
        until(lambda: world.is_ready(second), what="the second one, too", within_s=240)

    for name in ("first", "second"):
        assert set((world.shared / f"read-{name}").read_text().split()) == world.given
        kept = json.loads((world.shared / f"file-{name}").read_text())
        assert kept == {"personal0": {"lr": 0.1}, "personal1": 1, "personal2": 2, "team": True}
    places = {
        **stored(world.installation.environment["DATABASE_URL"]),
        **in_redis(world.installation),
        **in_files(world.installation.folder),
        **on_node(Path(world.node.home)),
        **told(world, (first, second)),
        "processes": b"\n".join(processes.seen),
        "inspect": inspected(world.podman),
    }
    (world.shared / "gate").touch()
    found = {
        place
        for place, content in places.items()
        for canary in world.canaries
        # A bytea reads as hexadecimal signs.
        if canary.encode() in content or canary.encode().hex().encode() in content
    }
    assert found == set()
    # What would be found, were it there.
    assert b"from-vault" in places["log of first"]
    assert b"SV0_FILE" in places["processes"]
    assert b"SV0" in places["inspect"]
    until(lambda: not [n for n in world.podman.names() if n.startswith("rpm-")], what="all end")


def make_vaults(world: World) -> None:
    """Three of alice's own, one in each format, and one of her group that enforces an entry."""
    names = sorted(world.of_vaults)
    parts = [names[start::4] for start in range(4)]
    formats = ("json", "yaml", "hocon")
    for number, (format_, part) in enumerate(zip(formats, parts[:3], strict=True)):
        data = {
            "secrets": {name: world.of_vaults[name] for name in part},
            "environment": {"FROM_VAULT": "from-vault", "PROXY": "own"},
            f"personal{number}": number or {"lr": 0.1},
        }
        # JSON is YAML and HOCON as well.
        body = {"name": f"v{number}", "format": format_, "text": json.dumps(data)}
        world.alice.post("/vaults/", {**body, "is_active": True})
    lines = "\n".join(f"  {name} = {world.of_vaults[name]}" for name in parts[3])
    text = f"secrets {{\n{lines}\n}}\nenvironment.PROXY = enforced\nteam = true\n"
    enforced = ["environment.PROXY"]
    made = world.root.post(
        "/vaults/",
        {"name": "team", "group": "team", "text": text, "enforced": enforced, "is_active": True},
    )
    names = sorted(world.unused)
    lines = "\n".join(f"  {name} = {world.unused[name]}" for name in names[:40])
    world.alice.post("/vaults/", {"name": "off", "text": f"secrets {{\n{lines}\n}}"})
    draft = {name: world.unused[name] for name in names[40:]}
    world.alice.post("/tasks/", {"name": "draft", "secrets": draft})
    # Read and sent back as it was read, it keeps what was hidden.
    text = made["text"] + "# seen\n"
    world.root.patch(f"/vaults/{made['id']}/", {"text": text}, **{"If-Match": '"1"'})


def stored(url: str) -> dict[str, bytes]:
    """Every row of every table."""
    if not url.startswith("postgresql://"):
        # Its file lies below the folder of the installation.
        return {}
    with psycopg.connect(url, autocommit=True) as session:
        tables = session.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        found = {}
        for (name,) in tables:
            query = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(name))
            rows = session.execute(query).fetchall()
            found[f"table {name}"] = "\n".join(row[0] for row in rows).encode()
        return found


def in_redis(installation: Installation) -> dict[str, bytes]:
    """Everything that Redis holds at this moment."""
    path = Path(installation.environment["RPM_HOME"]) / "redis.sock"
    client: Any = redis.Redis(unix_socket_path=str(path))
    values = [key + b" " + (client.dump(key) or b"") for key in client.scan_iter()]
    return {"redis": b"\n".join(values)}


def in_files(folder: Path) -> dict[str, bytes]:
    """Logs, the database of SQLite, and whatever else the programs left."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def on_node(home: Path) -> dict[str, bytes]:
    """What the helper keeps on the node, without the output as the task itself wrote it there."""
    found = in_files(home)
    return {path: content for path, content in found.items() if not path.endswith("/log")}


def told(world: World, tasks: tuple[str, str]) -> dict[str, bytes]:
    """Answers and pages, of the owner and of an administrator."""
    vaults = [row["id"] for row in world.root.get("/vaults/")["results"]]
    paths = ["/tasks/", "/vaults/", "/credentials/", "/audit/", "/nodes/", "/queues/"]
    paths += [f"/vaults/{one}/{part}" for one in vaults for part in ("", "history/")]
    parts = ("", "attempts/", "explain/", "effective-vault/", "logs/")
    paths += [f"/tasks/{one}/{part}" for one in tasks for part in parts]
    found = {}
    for who, client in (("rita", world.root), ("alice", world.alice)):
        for path in paths:
            answer = client.http.get(path)
            assert answer.status_code < 500, path
            found[f"{who} {path}"] = answer.content
    for name, task in zip(("first", "second"), tasks, strict=True):
        answer = world.alice.http.get(f"/tasks/{task}/logs/", params={"as": "text"})
        found[f"log of {name}"] = answer.content
    return found


def inspected(podman: PodmanStore) -> bytes:
    """What podman says of all containers and secrets."""
    containers = podman.run("container", "inspect", *sorted(podman.names())).stdout
    return containers + podman.run("secret", "ls").stdout


def configure(root: Client, shared: Path) -> None:
    """One pool of two GPUs, one profile, one team."""
    root.post(
        "/volumes/",
        {"name": "shared", "path": str(shared), "is_read_only": False, "scope": "everywhere"},
    )
    version = root.http.get("/configuration/draft/").headers["ETag"]
    document = {
        "pools": [{"name": "Pool", "capacity": 2}],
        "profiles": [
            {"name": "one", "request": 1, "pools": [{"pool": "Pool"}], "volumes": ["shared"]}
        ],
    }
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "One."})
    [profile] = root.get("/profiles/")["results"]
    policy = root.post("/policies/", {"name": "Team", "group": "team", "reserved": 2})
    root.post(f"/policies/{policy['id']}/profiles/", {"profile": profile["name"]})
