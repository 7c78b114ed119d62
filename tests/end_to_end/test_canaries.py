"""A hundred random secrets go through vaults, tasks and credentials, and stay where they belong.

Real sshd, podman, database and Redis. The tasks prove that they read them; credentials and tokens
sign in; writes fail in the middle, in web process and worker. Then everything that another user
could read is searched. Keys are rotated and old ones dropped in between.
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.exposure import (
    Answers,
    Processes,
    in_files,
    in_redis,
    inspected,
    on_node,
    pages,
    stored,
)
from tests.end_to_end.installation import Client, Installation, installed, until
from tests.end_to_end.write_failures import WORDS, refused_writes
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode, StartSshNode
from tests.services.timeouts import scale_timeout

PASSWORD = "correct-horse-battery"
# Answers that show a secret, this once.
SHOWN_ONCE = ("/credentials/", "/token/")
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
    # In inactive vaults, in a draft that is never enqueued, and in failing requests.
    unused: dict[str, str]
    answers: Answers = field(default_factory=Answers)
    # Secrets of credentials, and tokens.
    of_programs: set[str] = field(default_factory=set)

    @property
    def given(self) -> set[str]:
        return {*self.of_vaults.values(), *self.of_tasks.values()}

    @property
    def canaries(self) -> set[str]:
        return {*self.given, *self.unused.values(), *self.of_programs, PASSWORD}

    @property
    def database(self) -> str:
        return self.installation.environment["DATABASE_URL"]

    @property
    def is_postgres(self) -> bool:
        return self.database.startswith("postgresql://")

    def enqueue(self, name: str) -> str:
        return str(self.alice.post("/tasks/", self.task(name))["id"])

    def task(self, name: str) -> dict[str, object]:
        return {
            "name": name,
            "queue": "team-one",
            "image": self.podman.image,
            "command": ["/bin/sh", "-c", SCRIPT],
            "environment": {"NAME": name, "PROXY": "the task's"},
            "secrets": self.of_tasks,
            "volumes": ["shared"],
        }

    def is_ready(self, task_id: str) -> bool:
        answer = self.alice.http.get(f"/tasks/{task_id}/logs/", params={"as": "text"})
        return "ready from-vault enforced" in answer.text

    def log(self) -> str:
        return (self.installation.folder / "up.log").read_text(errors="replace")


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
    # podman creates each secret by itself, so a task gets few enough to start soon.
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
        made = World(installation, root, alice, node, podman, shared, of_vaults, of_tasks, unused)
        made.answers.listen("rita", root.http, shown_once=SHOWN_ONCE)
        made.answers.listen("alice", alice.http, shown_once=SHOWN_ONCE)
        yield made


def test_secrets_of_vaults_tasks_and_credentials_are_found_nowhere(world: World) -> None:
    make_vaults(world)
    processes = Processes()

    with processes.watched():
        first = world.enqueue("first")
        use_credentials(world)
        until(lambda: world.is_ready(first), what="the first task has read it", within_s=240)
        world.installation.manage("keys", "rotate")
        world.installation.manage("keys", "prune")
        fail_while_asked(world)
        second = fail_while_launching(world, "second")
        until(lambda: world.is_ready(second), what="the second one, too", within_s=240)
        # Both still run; what follows takes minutes, after which podman may know neither.
        inspected_early = inspected(world.podman)
        use_credentials(world)

    for name in ("first", "second"):
        assert set((world.shared / f"read-{name}").read_text().split()) == world.given
        kept = json.loads((world.shared / f"file-{name}").read_text())
        assert kept == {"personal0": {"lr": 0.1}, "personal1": 1, "personal2": 2, "team": True}
    places = looked_at(world, (first, second), processes)
    places["inspect"] += inspected_early
    (world.shared / "gate").touch()
    found = {
        place
        for place, content in places.items()
        for canary in world.canaries
        # A bytea reads as hexadecimal characters.
        if canary.encode() in content or canary.encode().hex().encode() in content
    }
    assert found == set()
    assert len(world.canaries) >= 120
    # These are found, which proves that the search works.
    assert b"from-vault" in places["log of first"]
    assert b"SV0_FILE" in places["processes"]
    assert b"SV0" in places["inspect"]
    assert world.log().count(WORDS) >= (4 if world.is_postgres else 1)
    assert f"page /tasks/{first}/ of alice" in places
    until(lambda: not [n for n in world.podman.names() if n.startswith("rpm-")], what="all end")


def looked_at(world: World, tasks: tuple[str, str], processes: Processes) -> dict[str, bytes]:
    """Everything that is searched, by its source."""
    ask(world, tasks)
    texts = {
        f"log of {name}": world.alice.http.get(f"/tasks/{task}/logs/", params={"as": "text"})
        for name, task in zip(("first", "second"), tasks, strict=True)
    }
    return {
        **{name: answer.content for name, answer in texts.items()},
        **pages(world.installation, "rita", PASSWORD),
        **pages(world.installation, "alice", PASSWORD),
        **world.answers.heard,
        **stored(world.database),
        **in_redis(world.installation),
        **in_files(world.installation.folder),
        **on_node(Path(world.node.home)),
        "processes": b"\n".join(processes.seen),
        "inspect": inspected(world.podman),
    }


def use_credentials(world: World) -> None:
    """New credentials sign in, also with tokens; some are wrong, and some are revoked."""
    for number in range(5):
        made = world.alice.post("/credentials/", {"label": f"program {number}"})
        with httpx.Client(base_url=world.alice.http.base_url, timeout=scale_timeout(60)) as program:
            right = (made["key"], made["secret"])
            token = program.post("/token/", auth=right).json()["token"]
            world.of_programs.update({made["secret"], token})
            bearer = {"Authorization": f"Bearer {token}"}
            world.answers.listen(f"program {number}", program, shown_once=SHOWN_ONCE)
            assert program.get("/tasks/", auth=right).status_code == 200
            assert program.get("/tasks/", headers=bearer).status_code == 200
            # Usual mistakes: the secret as the key, cut off, and in the address.
            assert program.get("/tasks/", auth=(made["secret"], "x")).status_code == 401
            assert program.get("/tasks/", auth=(made["key"], token)).status_code == 401
            if number < 2:
                gone = world.alice.http.delete(f"/credentials/{made['id']}/")
                assert gone.status_code == 204
                assert program.get("/tasks/", auth=right).status_code == 401
                assert program.get("/tasks/", headers=bearer).status_code == 401


def fail_while_asked(world: World) -> None:
    """The database refuses in the middle of requests that carry secrets."""
    # SQLite calls what its triggers raise a conflict.
    failed = {500} if world.is_postgres else {500, 409}
    spare = {name: world.unused[name] for name in sorted(world.unused)[-10:]}
    text = json.dumps({"secrets": spare})
    with refused_writes(world.database, "vaults_vaultversion"):
        body = {"name": "never", "format": "json", "text": text, "is_active": True}
        assert world.alice.http.post("/vaults/", json=body).status_code in failed
    with refused_writes(world.database, "tasks_task"):
        body = world.task("never") | {"secrets": spare}
        assert world.alice.http.post("/tasks/", json=body).status_code in failed
    with refused_writes(world.database, "accounts_credential"):
        body = {"label": "never"}
        assert world.alice.http.post("/credentials/", json=body).status_code in failed


def fail_while_launching(world: World, name: str) -> str:
    """The database refuses in the middle of a launch, when the worker has the secrets open."""
    before = world.log().count(WORDS)
    condition = "NEW.launched_at IS NOT NULL AND OLD.launched_at IS NULL"
    with refused_writes(world.database, "tasks_member", event="UPDATE", when=condition):
        task = world.enqueue(name)
        until(lambda: world.log().count(WORDS) > before, what="a launch that failed")
    assert "_launch" in world.log()
    return task


def ask(world: World, tasks: tuple[str, str]) -> None:
    """All requests of the owner and an administrator; every response is recorded."""
    vaults = [row["id"] for row in world.root.get("/vaults/")["results"]]
    paths = ["/tasks/", "/vaults/", "/credentials/", "/audit/", "/nodes/", "/queues/", "/users/"]
    paths += ["/audit/export/?as=csv", "/audit/export/?as=jsonl", "/account/"]
    paths += [f"/vaults/{one}/{part}" for one in vaults for part in ("", "history/")]
    parts = ("", "attempts/", "explain/", "effective-vault/", "logs/")
    paths += [f"/tasks/{one}/{part}" for one in tasks for part in parts]
    for client in (world.root, world.alice):
        for path in paths:
            assert client.http.get(path).status_code < 500, path


def make_vaults(world: World) -> None:
    """Three vaults of alice, one in each format, and one of her group that enforces an entry."""
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
    # Sent back as it was read, it keeps its hidden values.
    text = made["text"] + "# seen\n"
    world.root.patch(f"/vaults/{made['id']}/", {"text": text}, **{"If-Match": '"1"'})


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
