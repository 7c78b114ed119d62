"""From POST to the container's first line over SSH, compared with `podman run` over the same SSH.

A whole installation on PostgreSQL, a real sshd node, real podman. The first line of each container
is the machine's own uptime, so both are measured to the moment in which the line is written, on one
clock. The two alternate within one run, so that whatever else the machine does meets both.
"""

import shlex
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import paramiko

from apps.execution.transport.host_keys import open_connection, start
from tests.end_to_end.installation import Client, Installation, installed, until
from tests.services.podman import PodmanStore, podman_store
from tests.services.postgres import running_postgres
from tests.services.sshd import SshdNode, running_sshd

ROUNDS = 10
AIM_S = 0.4
COMMAND = ["cat", "/proc/uptime"]
PASSWORD = "correct-horse-battery"  # of an installation that lives for a minute


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians in seconds over so many rounds."""

    rpm_s: float
    podman_s: float
    rounds: int

    @property
    def more_s(self) -> float:
        return self.rpm_s - self.podman_s


def measure(*, rounds: int = ROUNDS) -> Figure:
    """Both in turns, after one round of each that does not count."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (
        TemporaryDirectory() as folder,
        running_postgres(durable=True) as cluster,
        podman_store() as podman,
        running_sshd() as node,
        installed(Path(folder), cluster.url(), RPM_LOG_LEVEL="WARNING") as installation,
        _connected(node) as connection,
    ):
        client = _configured(installation, node, podman)
        pairs = [
            (_by_podman(connection, podman), _by_rpm(client, podman)) for _ in range(rounds + 1)
        ][1:]
    return Figure(
        rpm_s=statistics.median(rpm for _, rpm in pairs),
        podman_s=statistics.median(plain for plain, _ in pairs),
        rounds=rounds,
    )


def _uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def _by_rpm(client: Client, podman: PodmanStore) -> float:
    body = {"name": "first-line", "queue": "team-1xgpu", "image": podman.image, "command": COMMAND}
    began = _uptime_s()
    task = client.post("/tasks/", body)
    path = f"/tasks/{task['id']}/"
    ended = until(lambda: _ended(client, path), what="the task has ended", within_s=60)
    log = client.http.get(f"{path}logs/", params={"as": "text"}).text
    if ended != "completed":
        raise RuntimeError(f"the task ended {ended}: {log}")
    return float(log.split()[0]) - began


def _ended(client: Client, path: str) -> str:
    state = str(client.get(path)["state"])
    return state if state in {"completed", "failed", "aborted"} else ""


def _by_podman(connection: paramiko.Transport, podman: PodmanStore) -> float:
    variables = [f"{name}={value}" for name, value in podman.environment.items()]
    run = ["podman", "run", "--rm", "--", podman.image, *COMMAND]
    command = shlex.join(["env", *variables, *run])
    began = _uptime_s()
    channel = connection.open_session()
    channel.exec_command(command)
    with channel.makefile("rb") as output:
        words = output.read().decode()
    if channel.recv_exit_status() != 0:
        raise RuntimeError(channel.makefile_stderr("rb").read().decode())
    return float(words.split()[0]) - began


@contextmanager
def _connected(node: SshdNode) -> Iterator[paramiko.Transport]:
    """A connection that is open already, as the control plane's own is."""
    connection = open_connection(node.address, node.port, timeout_s=10)
    start(connection, timeout_s=10)
    try:
        connection.auth_publickey(
            node.user, paramiko.Ed25519Key.from_private_key_file(str(node.key_path))
        )
        yield connection
    finally:
        connection.close()


def _configured(installation: Installation, node: SshdNode, podman: PodmanStore) -> Client:
    root = installation.person("root", "Admins", password=PASSWORD)
    user = installation.person("alice", "team", password=PASSWORD)
    version = root.http.get("/configuration/draft/").headers["ETag"]
    document = {
        "pools": [{"name": "Pool", "capacity": 1}],
        "profiles": [{"name": "1xGPU", "request": 1, "pools": [{"pool": "Pool"}]}],
    }
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "For measuring."})
    policy = root.post("/policies/", {"name": "Team", "group": "team", "reserved": 1})
    root.post(f"/policies/{policy['id']}/profiles/", {"profile": "1xGPU"})
    variables = [f"--env={key}={value}" for key, value in podman.environment.items()]
    installation.manage(
        *("node", "add", "node", "--pool", "Pool", "--address", node.address),
        *("--port", str(node.port), "--user", node.user, "--key", str(node.key_path)),
        *("--fingerprint", node.host_key.fingerprint, "--runtime", "podman"),
        *("--state-dir", node.home, "--simulated-gpus", "1"),
        *variables,
    )
    return user


def main() -> None:
    figure = measure()
    print(  # noqa: T201  # this is what it is for
        f"first line over SSH: {figure.rpm_s:.2f} s after POST, {figure.podman_s:.2f} s after "
        f"podman run; {figure.more_s:+.2f} s (aim: within {AIM_S} s), medians of {figure.rounds}"
    )


if __name__ == "__main__":
    main()
