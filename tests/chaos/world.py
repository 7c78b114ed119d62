"""A whole installation to be broken: servers, nodes and processes, all of them ended at the end."""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.chaos import control as control_plane
from tests.chaos import workload
from tests.chaos.broker_messages import MessageInterceptor
from tests.chaos.control import ControlPlane
from tests.chaos.load import QueueTarget
from tests.chaos.machine import run, set_clock
from tests.chaos.nodes import ChaosNode
from tests.chaos.proxy import CommitProxy
from tests.chaos.servers import PostgresServer, RedisControl
from tests.chaos.stage import POOLS, STANDBY, Stage
from tests.end_to_end.installation import Client, Installation, until
from tests.services import ports
from tests.services.podman import PodmanStore, podman_store
from tests.services.postgres import running_postgres
from tests.services.redis import running_redis
from tools.packages import find_program

SOURCES = Path(__file__).parent
PASSWORD = "correct-horse-battery"
POSTGRES_DISK_MB = 1024
PROFILES = {"box": "podman", "mass": "process", "frail": "process"}
TEAMS = ("alpha", "beta")
GRACE_S = 2
# The fewest programs that enqueue over both ways, decide, and take nodes over from each other.
SMALL = ("web-2", "worker-1", "server-1", "server-2", control_plane.ALONE)
# What a queue does when its node falls silent; the others wait for it.
ON_NODE_LOSS = {"beta-mass": "requeue", "alpha-frail": "fail"}
# A machine that is busy with other things may not answer in time at first.
ADDING = """
from django.core.management import CommandError, call_command

def add(words):
    for turn in range(3):
        try:
            return call_command(*words)
        except CommandError:
            if turn == 2:
                raise

"""


@dataclass(slots=True)
class World:
    """The stage of the faults, and what a client needs to know."""

    folder: Path
    stage: Stage
    database_url: str
    webs: dict[str, str]
    slots: int
    credential: tuple[str, str] = ("", "")

    def queue_targets(self, image: str) -> dict[str, list[QueueTarget]]:
        """The queues of each runtime, and how their work finds its folders."""
        here = next(iter(self.stage.nodes.values())).here
        inside = {
            "image": image,
            "volumes": ["here", "locks", "tools"],
            "environment": {"CHAOS_HERE": "/volumes/here", "CHAOS_LOCKS": "/volumes/locks"},
        }
        outside = {
            "image": "none",
            "environment": {"CHAOS_HERE": str(here), "CHAOS_LOCKS": f"{self.folder}/locks"},
        }
        return {
            "podman": [QueueTarget(f"{team}-box", inside, "/volumes/tools/job") for team in TEAMS],
            "process": [
                QueueTarget(queue, _task_body(queue, outside), f"{self.folder}/tools/job")
                for queue in ("alpha-mass", "beta-mass", "alpha-frail")
            ],
        }


def _task_body(queue: str, body: dict[str, Any]) -> dict[str, Any]:
    """The work knows what becomes of it, so that a fault finds the work that it is about."""
    then = {"CHAOS_ON_LOSS": ON_NODE_LOSS.get(queue, "wait")}
    return {**body, "environment": body["environment"] | then}


def target_names(
    *, podman_nodes: int, process_nodes: int, is_small: bool = False
) -> dict[str, list[str]]:
    """Kind of target -> names, as the schedule asks.

    Args:
        is_small: only the programs of SMALL.
    """
    nodes = [f"node-{number + 1}" for number in range(podman_nodes + process_nodes)]
    programs = {
        "web": ["web-1", "web-2"],
        "worker": ["worker-1", "worker-2"],
        "server": ["server-1", "server-2"],
        "beat": ["beat-1"],
    }
    if is_small:
        programs = {
            kind: [name for name in names if name in SMALL] for kind, names in programs.items()
        }
    return {
        **programs,
        "control": ["control"],
        "node": nodes,
        "podman-node": nodes[:podman_nodes],
        "redis": ["redis"],
        "postgres": ["postgres"],
    }


@contextmanager
def opened(
    *,
    seed: int,
    podman_nodes: int,
    process_nodes: int,
    keep: Path | None,
    is_small: bool = False,
    lease_s: int = 20,
    slots: int = 8,
) -> Iterator[World]:
    """Everything running and healthy; ended and removed afterwards, whatever happened.

    Args:
        keep: where logs and journals are put before that.
        slots: GPUs of each node.
    """
    with ExitStack() as stack:
        folder = _folder(stack)
        library = _compile(folder)
        postgres, redis = _servers(stack, folder)
        proxy = CommitProxy(postgres.cluster.port, seed=seed)
        proxy.start()
        stack.callback(proxy.close)
        if keep is not None:
            stack.callback(_keep, keep, folder)
        nodes = _nodes(stack, folder, library, podman_nodes, process_nodes)
        clock = folder / "control-clock"
        set_clock(clock, 0)
        environment = control_plane.control_environment(
            database_url=postgres.cluster.url().replace(
                f":{postgres.cluster.port}/", f":{proxy.port}/"
            ),
            redis_url=redis.server.url(),
            home=folder / "home",
            clock_library=library,
            clock=clock,
        )
        environment |= {"RPM_LEASE_S": str(lease_s), "RPM_NODE_SILENT_S": "5"}
        web_ports = (ports.free_port(), ports.free_port())
        control = ControlPlane(
            folder,
            environment,
            control_plane.programs(web_ports=web_ports, home=folder / "home"),
        )
        if is_small:
            control.commands = {name: control.commands[name] for name in SMALL}
        stack.callback(control.close)
        webs = {
            name: f"http://127.0.0.1:{port}"
            for name, port in zip(("web-1", "web-2"), web_ports, strict=True)
            if name in control.commands
        }
        port = web_ports[0] if "web-1" in webs else web_ports[1]
        stage = Stage(
            seed,
            nodes,
            control,
            postgres,
            redis,
            proxy,
            MessageInterceptor(redis.server.port),
            clock,
            Installation(folder, environment, port),
            slots,
        )
        world = World(folder, stage, postgres.cluster.url(), webs, slots)
        _begin(world)
        yield world


def _folder(stack: ExitStack) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rpm-chaos-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    for name, mode in (("", 0o755), ("locks", 0o777), ("tools", 0o755), ("home", 0o700)):
        (folder / name).mkdir(exist_ok=True)
        os.chmod(folder / name, mode)
    return folder


def _keep(keep: Path, folder: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    found = [
        *folder.glob("*.log"),
        *folder.glob("node-*/log"),
        *folder.glob("node-*/here/journal"),
        *folder.glob("node-*/disk/home/crashes.log"),
    ]
    for source in found:
        name = ".".join(source.relative_to(folder).parts)
        (keep / name).write_bytes(source.read_bytes())


def _compile(folder: Path) -> Path:
    """The program of the work, without libraries so that it runs in any image, and the clock."""
    clock = folder / "tools" / "clock.so"
    workload.compile_to(folder / "tools" / "job")
    run("cc", "-O1", "-shared", "-fPIC", "-o", clock, SOURCES / "clock.c")
    return clock


def _servers(stack: ExitStack, folder: Path) -> tuple[PostgresServer, RedisControl]:
    disk = folder / "postgres"
    disk.mkdir(mode=0o777)
    run("mount", "-t", "tmpfs", "-o", f"size={POSTGRES_DISK_MB}m,mode=1777", "rpm-chaos", disk)
    stack.callback(run, "umount", "-l", disk, check=False)
    # Where the cluster's folder is made: a disk of its own, that can be filled.
    before, tempfile.tempdir = tempfile.tempdir, str(disk)
    try:
        # What it has committed must outlive its crashes.
        cluster = stack.enter_context(running_postgres(durable=True))
    finally:
        tempfile.tempdir = before
    postgres = PostgresServer(cluster)
    stack.callback(postgres.close)
    redis = RedisControl(stack.enter_context(running_redis()), folder)
    stack.callback(redis.close)
    return postgres, redis


def _nodes(
    stack: ExitStack, folder: Path, library: Path, podman_nodes: int, process_nodes: int
) -> dict[str, ChaosNode]:
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    token, base = secrets.token_hex(2), 128 + secrets.randbelow(120)
    nodes: dict[str, ChaosNode] = {}
    for number in range(podman_nodes + process_nodes):
        store: PodmanStore | None = None
        if number < podman_nodes:
            store = stack.enter_context(podman_store())
        name = f"node-{number + 1}"
        node = ChaosNode(
            name=name,
            folder=folder / name,
            here=folder / "mine",
            cable=f"c{token}{number}",
            address=f"10.{base}.{number}.2",
            gateway=f"10.{base}.{number}.1",
            runtime="podman" if store else "process",
            store=store.folder if store else None,
            clock_library=library,
        )
        stack.callback(node.remove)
        node.make()
        node.boot()
        node.start_sshd()
        nodes[name] = node
    return nodes


def _begin(world: World) -> None:
    """Fill the database and start every program."""
    installation = world.stage.installation
    installation.manage("migrate", "--verbosity", "0")
    for name in world.stage.control.commands:
        if name not in STANDBY:
            world.stage.control.start(name)
    _wait_for_webs(world)
    root = installation.person("rita", "Admins", password=PASSWORD)
    groups = [word for team in TEAMS for word in ("--group", team)]
    words = installation.manage(
        *("person", "add", "alice", "--password-stdin", "--credential", *groups),
        content=f"{PASSWORD}\n",
    )
    key, secret = words.split()
    world.credential = (key, secret)
    _configure(root, world)
    _add_nodes(installation, world)


def _wait_for_webs(world: World) -> None:
    def all_answer() -> bool:
        try:
            return all(
                httpx.get(f"{address}/healthz", timeout=2).status_code == 200
                for address in world.webs.values()
            )
        except httpx.HTTPError:
            return False

    until(all_answer, what="every web process answers", within_s=300)


def _configure(root: Client, world: World) -> None:
    here = next(iter(world.stage.nodes.values())).here
    volumes = {"here": here, "locks": world.folder / "locks", "tools": world.folder / "tools"}
    for name, path in volumes.items():
        is_read_only = name == "tools"
        body = {"name": name, "path": str(path), "is_read_only": is_read_only}
        root.post("/volumes/", {**body, "scope": "everywhere"})
    version = root.http.get("/configuration/draft/").headers["ETag"]
    counts = Counter(node.runtime for node in world.stage.nodes.values())
    profiles = [(name, kind) for name, kind in PROFILES.items() if counts[kind]]
    kinds = [kind for kind in POOLS if counts[kind]]
    document = {
        "pools": [{"name": POOLS[kind], "capacity": world.slots * counts[kind]} for kind in kinds],
        "profiles": [
            {
                "name": name,
                "request": 1,
                "pools": [{"pool": POOLS[kind]}],
                "volumes": list(volumes) if kind == "podman" else [],
            }
            for name, kind in profiles
        ],
    }
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "Chaos."})
    total = world.slots * counts.total()
    for team, reserved in zip(TEAMS, (total, 0), strict=True):
        # All that the second team runs is over quota: there is always something to reclaim.
        policy = root.post(
            "/policies/",
            {"name": team, "group": team, "reserved": reserved, "limit": {"gpu": total}},
        )
        for name, _ in profiles:
            root.post(f"/policies/{policy['id']}/profiles/", {"profile": name})
            queue = f"{team}-{name}"
            changes = {"grace_s": GRACE_S, "on_node_loss": ON_NODE_LOSS.get(queue, "wait")}
            root.patch(f"/queues/{queue}/", changes)


def _add_nodes(installation: Installation, world: World) -> None:
    """All by one program: each would else take seconds to start."""
    nodes = world.stage.nodes.values()
    calls = [ADDING, *(f"add({world.stage.adding(node)!r})" for node in nodes)]
    installation.manage("shell", content="\n".join(calls) + "\n")


def what_is_missing() -> str:
    """Why this machine cannot run it; empty when it can."""
    if os.geteuid() != 0:
        return "needs root: nodes are namespaces of their own"
    programs = ("cc", "ip", "iptables", "nsenter", "unshare", "sshd", "podman", "initdb")
    missing = [name for name in programs if find_program(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "true"],
        capture_output=True,
        check=False,
    )
    return "" if tried.returncode == 0 else "namespaces are not allowed here"
