"""Work with a lease is gone when the lease ends, whatever is killed or stopped with it."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import msgspec
import pytest

from apps.execution.node import clocks, files, leases, members, processes, state_files
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder, note_supervisor, supervisor_of
from apps.execution.protocol.outcomes import Answered, NodeRefusal
from apps.execution.protocol.requests import LaunchRequest, LeaseRenewal
from tests.execution.nodes import (
    INSTALLATION,
    TestedNode,
    installed_local,
    installed_ssh,
    member_of,
)
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode, helpers_of, kill_helpers
from tests.services.timeouts import scale_timeout

LEASE_S = 8.0
# Says every 50 ms that it lives, on the clock by which leases end.
HEARTBEAT = "while true; do cut -d' ' -f1 /proc/uptime; sleep 0.05; done"


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


@pytest.fixture
def node(home: str) -> Iterator[TestedNode]:
    """This machine as a node."""
    yield installed_local(home)
    end_helpers(home)


def end_helpers(home: str) -> None:
    for pid in helpers_of(home):
        processes.send(pid, signal.SIGCONT, lambda _: True)
    kill_helpers(home)


def leased(
    node: TestedNode, *command: str, lease_s: float = LEASE_S, **changes: object
) -> LaunchRequest:
    """A request whose lease ends in `lease_s`, in which a busy machine still starts it."""
    until_s = node.probe().clocks.uptime_s + scale_timeout(lease_s)
    return node.launch_request(*command, lease_until_s=until_s, **changes)


def until_of(request: LaunchRequest) -> float:
    assert request.lease_until_s is not None
    return request.lease_until_s


def member_of_request(home: str, request: LaunchRequest) -> MemberFolder:
    return MemberFolder(home, MemberIdentity(request.task_id, request.generation, request.rank))


def watchdogs_of(home: str, request: LaunchRequest) -> set[int]:
    """The helper's processes for one member, without its supervisor."""
    return set(helpers_of(home)) - {supervisor_of(member_of_request(home, request))}


def has_watchdog(home: str, request: LaunchRequest) -> bool:
    return bool(watchdogs_of(home, request))


def last_sign(log: bytes) -> float:
    """When the task last said that it lived; a dying shell may say what was killed after that."""
    lines = log.decode().split("\n")
    return float(next(one for one in reversed(lines) if one[:1].isdigit()))


def test_a_task_is_gone_when_its_lease_ends(node: TestedNode) -> None:
    request = leased(node, "sh", "-c", HEARTBEAT)

    node.client.launch(request)

    ended = node.wait_for_exit(member_of(request))
    assert ended.is_lease_over
    assert "lease" in ended.error
    assert ended.exit_code in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert last_sign(node.logs[member_of(request)]) <= until_of(request)


def test_a_task_that_ignores_sigterm_is_gone_when_its_lease_ends(node: TestedNode) -> None:
    request = leased(node, "sh", "-c", f"trap '' TERM; {HEARTBEAT}")

    node.client.launch(request)

    ended = node.wait_for_exit(member_of(request))
    assert ended.is_lease_over
    assert ended.exit_code == 128 + signal.SIGKILL
    assert last_sign(node.logs[member_of(request)]) <= until_of(request)


def kill_supervisor(home: str, request: LaunchRequest) -> None:
    os.kill(supervisor_of(member_of_request(home, request)) or 0, signal.SIGKILL)


def stop_supervisor(home: str, request: LaunchRequest) -> None:
    os.kill(supervisor_of(member_of_request(home, request)) or 0, signal.SIGSTOP)


def kill_watchdog(home: str, request: LaunchRequest) -> None:
    for pid in watchdogs_of(home, request):
        os.kill(pid, signal.SIGKILL)


def stop_watchdog(home: str, request: LaunchRequest) -> None:
    for pid in watchdogs_of(home, request):
        os.kill(pid, signal.SIGSTOP)


HARM = (kill_supervisor, stop_supervisor, kill_watchdog, stop_watchdog)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, TestedNode]]:
    """A node for each kind of harm, by its name."""
    homes = {harm.__name__: str(tmp_path / harm.__name__) for harm in HARM}
    yield {name: installed_local(home) for name, home in homes.items()}
    for home in homes.values():
        end_helpers(home)


def test_no_harm_to_one_of_its_watchers_lets_a_task_outlive_its_lease(
    nodes: dict[str, TestedNode], tmp_path: Path
) -> None:
    # All of them at once: each waits as long as its lease lasts.
    requests: dict[str, LaunchRequest] = {}
    for harm in HARM:
        name, home = harm.__name__, str(tmp_path / harm.__name__)
        signs = tmp_path / f"{name}.signs"
        signs.touch()
        signs.chmod(0o666)
        command = f"trap '' TERM; exec >> {signs}; {HEARTBEAT}"
        request = requests[name] = leased(nodes[name], "sh", "-c", command)
        nodes[name].client.launch(request)
        wait_until(partial(has_watchdog, home, request), what=f"the watchdog before {name}")
        harm(home, request)

    # Nobody asks the nodes meanwhile: the control plane is away.
    for name, request in requests.items():
        folder = member_of_request(str(tmp_path / name), request)
        wait_until(partial(folder.has, "exit.json"), what=f"the end after {name}")
    for name, request in requests.items():
        ended = nodes[name].wait_for_exit(member_of(request))
        assert ended.is_lease_over, name
        assert last_sign((tmp_path / f"{name}.signs").read_bytes()) <= until_of(request), name


def test_each_watcher_starts_the_other_again(node: TestedNode, home: str) -> None:
    request = leased(node, "sleep", "60", lease_s=600)
    node.client.launch(request)
    wait_until(lambda: bool(watchdogs_of(home, request)), what="the watchdog")
    first, watchdogs = supervisor_of(member_of_request(home, request)), watchdogs_of(home, request)

    kill_watchdog(home, request)
    # On a busy machine the killed one is still there for a moment.
    wait_until(lambda: bool(watchdogs_of(home, request) - watchdogs), what="another watchdog")
    kill_supervisor(home, request)
    wait_until(
        lambda: supervisor_of(member_of_request(home, request)) not in {None, first},
        what="another supervisor",
    )

    assert not watchdogs_of(home, request) & watchdogs


def test_a_supervisor_is_found_where_the_one_before_it_had_a_longer_number(tmp_path: Path) -> None:
    folder = MemberFolder(str(tmp_path), MemberIdentity("t1", 1, 0))
    Path(folder.path("")).mkdir(parents=True)
    Path(folder.path("alive")).write_bytes(b"4194304 99999999999999\n")
    alive = files.take_lock(folder.path("alive"), wait=False)
    assert alive is not None

    note_supervisor(alive)

    os.close(alive)
    assert supervisor_of(folder) == os.getpid()


def test_renewals_keep_a_task_alive_and_are_never_shorter(
    node: TestedNode, home: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f"until [ -e {gate} ]; do sleep 0.1; done; exit 7"
    request = leased(node, "sh", "-c", command)
    until_s = until_of(request)
    node.client.launch(request)
    later = LeaseRenewal(request.task_id, 1, 0, until_s + 60)

    node.sync(leases=(later,))
    node.sync(leases=(msgspec.structs.replace(later, until_s=until_s - 1),))
    node.sync(leases=(LeaseRenewal("unknown", 1, 0, until_s + 60),))
    kept = leases.read(member_of_request(home, request))

    assert kept is not None
    assert kept.until_s == until_s + 60
    wait_until(lambda: clocks.uptime_s() > until_s, what="the end of the first lease")
    gate.touch()
    ended = node.wait_for_exit(member_of(request))
    assert (ended.exit_code, ended.is_lease_over, ended.error) == (7, False, "")


def test_a_lease_that_is_over_is_not_given_again(node: TestedNode, home: str) -> None:
    request = leased(node, "sleep", "60")
    assert isinstance(node.client.launch(request), Answered)
    wait_until(lambda: leases.is_over(member_of_request(home, request)), what="the lease is over")

    node.sync(leases=(LeaseRenewal(request.task_id, 1, 0, until_of(request) + 600),))

    assert node.wait_for_exit(member_of(request)).is_lease_over


def test_a_launch_whose_lease_is_over_is_late(node: TestedNode) -> None:
    outcome = node.client.launch(leased(node, "true", lease_s=-1))

    assert isinstance(outcome, NodeRefusal)
    assert outcome.code == "late"
    assert node.sync().members == ()


def test_a_repeated_launch_can_bring_a_longer_lease(node: TestedNode, home: str) -> None:
    request = leased(node, "sleep", "60", lease_s=600)
    node.client.launch(request)
    longer = msgspec.structs.replace(request, lease_until_s=until_of(request) + 600)

    again = node.client.launch(longer)

    assert isinstance(again, Answered)
    kept = leases.read(member_of_request(home, request))
    assert kept is not None
    assert kept.until_s == longer.lease_until_s


def test_a_task_that_is_to_wait_for_ever_has_no_watchdog(node: TestedNode, home: str) -> None:
    request = node.launch_request("sleep", "60")

    node.client.launch(request)
    node.sync()

    assert watchdogs_of(home, request) == set()
    assert not member_of_request(home, request).has("lease.json")


# What podman says of a container that was never made.
NOTHING = "{ echo 'Error: no such container' >&2; exit 125; }"
THERE = f'[{{"Id": "{7:064}", "RepoTags": ["a.b/c:1"]}}]'


def test_a_lease_ends_before_a_slow_runtime_has_made_the_container(
    tmp_path: Path, home: str
) -> None:
    tools, image = tmp_path / "tools", tmp_path / "image"
    tools.mkdir()
    image.mkdir()
    slow = tools / "podman"
    # Longer than the lease, which is longer on a busy machine.
    runs_s = 4 * scale_timeout(LEASE_S)
    slow.write_text(
        f"#!/bin/sh\n[ $2 = mount ] && exec echo {image}\n[ $1 = image ] && exec echo '{THERE}'\n"
        f"[ $1 = run ] || {NOTHING}\nsleep {runs_s:.0f}\ntouch {tmp_path}/made\n"
    )
    slow.chmod(0o755)
    node = installed_local(home, environment={"PATH": f"{tools}:{os.environ['PATH']}"})
    request = leased(node, "true", runtime="podman", image="a.b/c:1", uid=1, gid=1, start_wait_s=0)

    outcome = node.client.launch(request)

    assert isinstance(outcome, Answered), outcome
    ended = node.wait_for_exit(member_of(request))
    assert ended.is_lease_over
    assert ended.exit_code is None
    assert not (tmp_path / "made").exists()
    assert (
        processes.clients("podman", f"rpm-{node.client.installation}-{request.task_id}-1-0")
        == set()
    )


def test_the_lease_is_there_before_anything_runs(node: TestedNode, home: str) -> None:
    request = leased(node, "sleep", "60", lease_s=600)
    folder = Path(member_of_request(home, request).folder)
    folder.mkdir(parents=True)
    slow = files.take_lock(str(folder / "alive"), wait=False)
    assert slow is not None

    node.client.launch(request)

    kept = leases.read(member_of_request(home, request))
    os.close(slow)
    assert kept is not None
    assert kept.term_at_s < kept.kill_at_s < kept.until_s
    assert kept.until_s - kept.term_at_s == pytest.approx(leases.AHEAD_S)


@pytest.mark.parametrize("harm", [kill_supervisor, kill_watchdog], ids=lambda f: f.__name__)
def test_a_container_is_gone_when_its_lease_ends(
    ssh_node: SshdNode, podman: PodmanStore, harm: Callable[[str, LaunchRequest], None]
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    member_home = ssh_node.home
    request = leased(
        node,
        "sh",
        "-c",
        f"trap '' TERM; {HEARTBEAT}",
        lease_s=2 * LEASE_S,
        runtime="podman",
        image=podman.image,
        allow_process=False,
        uid=12345,
        gid=12345,
    )
    node.client.launch(request)
    member = member_of(request)
    node.wait_for(member, lambda one: one.state == "running")
    wait_until(lambda: bool(watchdogs_of(member_home, request)), what="the watchdog")

    harm(member_home, request)

    wait_until(lambda: member_of_request(member_home, request).has("exit.json"), what="the end")
    ended = node.wait_for_exit(member)
    assert ended.is_lease_over
    assert ended.exit_code == 128 + signal.SIGKILL
    assert last_sign(node.logs[member]) <= until_of(request)
    assert clocks.uptime_s() > until_of(request) - leases.AHEAD_S


def test_a_renewal_waits_for_no_launch_or_stop_under_way(node: TestedNode, home: str) -> None:
    requests = [leased(node, "sleep", "60", lease_s=600) for _ in range(2)]
    for request in requests:
        node.client.launch(request)
    later = max(map(until_of, requests)) + 60
    renewals = tuple(LeaseRenewal(one.task_id, 1, 0, later) for one in requests)

    with files.locked(state_files.task_lock(home, requests[0].task_id)):
        began = monotonic()
        # Nor does what is acknowledged meanwhile.
        report = node.sync(member_of(requests[0]), leases=renewals)
        took_s = monotonic() - began

    kept = [leases.read(member_of_request(home, one)) for one in requests]
    assert [one.until_s for one in kept if one is not None] == [later, later]
    assert {one.member for one in report.members} == {member_of(one) for one in requests}
    assert took_s < files.LOCK_LIMIT_S


def test_a_lock_that_is_held_for_too_long_is_given_up(home: str) -> None:
    path = str(Path(home).parent / "lock")

    with files.locked(path):
        with pytest.raises(RequestRefusal) as refusal, files.locked(path, limit_s=0.05):
            pass
        assert files.take_lock(path, wait=True, limit_s=0.05) is None

    assert refusal.value.code == "late"
    with files.locked(path, limit_s=0):
        pass


def test_a_start_that_takes_long_holds_no_lock(
    node: TestedNode, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = node.launch_request("sleep", "60", start_wait_s=60)
    lock = state_files.task_lock(home, request.task_id)
    waits: list[bool] = []

    def look(*_: object) -> None:
        # The supervisor lets go what it inherited, which takes a moment.
        wait_until(lambda: not files.is_locked(lock), what="the lock is free")
        waits.append(True)

    monkeypatch.setattr(members, "select", SimpleNamespace(select=look))
    fields = msgspec.json.decode(msgspec.json.encode(request), type=dict[str, object])
    members.launch(home, {"installation": INSTALLATION}, fields)

    assert waits == [True]
    node.stop(member_of(request), grace_s=0)
    node.wait_for_exit(member_of(request))
