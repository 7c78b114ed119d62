"""Shares of a real GPU: the memory limit holds, and a task that meets it harms no other."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apps.execution.node import mps as care
from apps.execution.protocol.answers import DeviceReport
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import AllocatedDevice, MemberKey
from tests.execution.nodes import TestedNode, member_of
from tests.services.ports import wait_until

PROGRAM = Path(__file__).with_name("program.py").read_text()
QUARTER = 250
# What a context and the rounding to blocks may take of a share.
OVERHEAD_MB = 2_048
Note = Callable[..., None]


def share_of(
    device: DeviceReport, milli: int = QUARTER, *, is_enforced: bool = True
) -> AllocatedDevice:
    return AllocatedDevice(
        device.uuid,
        device.cdi,
        milli=milli,
        memory_mb=device.memory_mb * milli // 1000,
        enforced_by="mps" if is_enforced else "",
    )


def started(node: TestedNode, what: str, device: AllocatedDevice, **more: Any) -> MemberKey:
    """The program of this folder as a task, by its text: users may not read this folder."""
    # The machine's own Python where there is one: other users may not reach the one of the tests.
    python = shutil.which("python3", path="/usr/bin:/bin") or os.path.realpath(sys.executable)
    path = os.environ.get("LD_LIBRARY_PATH")
    libraries = {"LD_LIBRARY_PATH": path} if path else {}
    request = node.launch_request(
        *(python, "-c", PROGRAM, what), devices=(device,), environment=libraries, **more
    )
    outcome = node.client.launch(request)
    assert isinstance(outcome, Answered), outcome
    return member_of(request)


def lines(node: TestedNode, member: MemberKey) -> list[dict[str, Any]]:
    """What the program has said in whole lines."""
    said = node.logs.get(member, b"").decode()
    return [json.loads(line) for line in said[: said.rfind("\n") + 1].splitlines()]


def all_it_got(node: TestedNode, member: MemberKey) -> dict[str, Any]:
    """The last word of a program that took all it could."""
    assert node.wait_for_exit(member).exit_code == 0, node.logs.get(member)
    return lines(node, member)[-1]


def checks(node: TestedNode, member: MemberKey, *, at_least: int = 1) -> list[dict[str, Any]]:
    """Everything a holder found out about its memory, once it has looked so often."""

    def has_looked() -> bool:
        return lines(node, member)[-1:] != [] and lines(node, member)[-1].get("checks", 0) >= (
            at_least
        )

    node.wait_for(member, lambda one: has_looked() or one.state == "exited")
    found = [line for line in lines(node, member) if "checks" in line]
    assert len(found) >= at_least, node.logs.get(member)
    return found


def stopped(node: TestedNode, *members: MemberKey) -> None:
    for member in members:
        node.stop(member, grace_s=0)
        node.wait_for_exit(member)
    node.sync(*members)
    home: str = node.client.transport.home  # type: ignore[attr-defined]  # a local one
    wait_until(lambda: not care.daemons(home), what="the end of every daemon")


def test_memory_beyond_the_share_is_refused(
    node: TestedNode, mps: None, whole_gpu: DeviceReport, note: Note
) -> None:
    share = share_of(whole_gpu)

    member = started(node, "all", share)
    got = all_it_got(node, member)

    first = lines(node, member)[0]
    note(gpu=whole_gpu.model, share_mb=share.memory_mb, **got, shown_mb=first["total_mb"])
    assert got["is_out_of_memory"]
    assert share.memory_mb - OVERHEAD_MB <= got["taken_mb"] <= share.memory_mb
    stopped(node, member)


def test_a_share_that_is_only_accounted_is_held_by_nothing(
    node: TestedNode, whole_gpu: DeviceReport, note: Note
) -> None:
    # The same program without MPS gets more: so it is MPS that holds it above.
    share = share_of(whole_gpu, is_enforced=False)

    member = started(node, "all", share)
    got = all_it_got(node, member)

    note(gpu=whole_gpu.model, share_mb=share.memory_mb, **got)
    assert got["taken_mb"] > share.memory_mb + OVERHEAD_MB
    stopped(node, member)


def test_a_share_computes_on_its_part_of_the_multiprocessors(
    node: TestedNode, mps: None, whole_gpu: DeviceReport, note: Note
) -> None:
    whole = started(node, "spread", AllocatedDevice(whole_gpu.uuid, whole_gpu.cdi))
    all_of_them = all_it_got(node, whole)
    stopped(node, whole)

    part = started(node, "spread", share_of(whole_gpu))
    got = all_it_got(node, part)

    note(gpu=whole_gpu.model, whole=all_of_them, quarter=got)
    assert all_of_them["used"] == all_of_them["reported"]
    assert 0 < got["used"] <= all_of_them["used"] * QUARTER / 1000
    stopped(node, part)


@pytest.mark.parametrize(
    "neighbour",
    [
        pytest.param({}, id="of the same user"),
        pytest.param({"uid": 12_345, "gid": 12_345}, id="of another user"),
    ],
)
def test_a_neighbour_that_meets_its_limit_or_is_killed_harms_nobody(
    node: TestedNode, mps: None, whole_gpu: DeviceReport, note: Note, neighbour: dict[str, int]
) -> None:
    share = share_of(whole_gpu)
    ours = started(node, str(share.memory_mb // 2), share)
    before = len(checks(node, ours))

    greedy = started(node, "all", share, **neighbour)
    got = all_it_got(node, greedy)
    killed = started(node, str(share.memory_mb // 2), share, **neighbour)
    checks(node, killed)
    node.stop(killed, grace_s=0)
    node.wait_for_exit(killed)
    after = checks(node, ours, at_least=before + 5)

    note(gpu=whole_gpu.model, held_mb=after[-1]["held_mb"], checks=len(after), **got)
    assert got["is_out_of_memory"]
    assert got["taken_mb"] <= share.memory_mb
    assert [line["spoilt"] for line in after] == [0] * len(after)
    stopped(node, ours, greedy, killed)


def test_the_figures_of_the_driver_are_those_of_the_tasks(
    node: TestedNode, mps: None, whole_gpu: DeviceReport, note: Note
) -> None:
    share = share_of(whole_gpu)
    members = [started(node, str(share.memory_mb // 2), share) for _ in range(2)]
    held_mb = [checks(node, member)[-1]["held_mb"] for member in members]

    found = node.sync(full=True).device_processes
    now = next(one for one in node.probe().answer.devices if one.uuid == whole_gpu.uuid)

    here = [one for one in found if one.uuid == whole_gpu.uuid]
    note(
        gpu=whole_gpu.model,
        held_mb=held_mb,
        reported_mb=[one.memory_mb for one in here],
        used_mb=now.used_mb - whole_gpu.used_mb,
    )
    # No foreign process: neither the tasks nor the server between them and the GPU.
    assert {one.member for one in here} == set(members)
    assert now.used_mb - whole_gpu.used_mb >= sum(held_mb)
    for member, want_mb in zip(members, held_mb, strict=True):
        (process,) = [one for one in here if one.member == member]
        # 0 where the driver does not tell, as for the clients of some MPS servers.
        assert process.memory_mb == 0 or want_mb <= process.memory_mb <= want_mb + OVERHEAD_MB
    stopped(node, *members)


def test_a_whole_gpu_is_all_there(node: TestedNode, whole_gpu: DeviceReport, note: Note) -> None:
    member = started(node, "64", AllocatedDevice(whole_gpu.uuid, whole_gpu.cdi))

    checks(node, member)

    first = lines(node, member)[0]
    note(gpu=whole_gpu.model, memory_mb=whole_gpu.memory_mb, shown_mb=first["total_mb"])
    assert first["total_mb"] >= whole_gpu.memory_mb - OVERHEAD_MB
    (here,) = [one for one in node.sync(full=True).device_processes if one.uuid == whole_gpu.uuid]
    assert here.member == member
    stopped(node, member)


def test_a_slice_ends_where_the_hardware_ends_it(
    node: TestedNode, gpu_slice: DeviceReport, note: Note
) -> None:
    member = started(node, "all", AllocatedDevice(gpu_slice.uuid, gpu_slice.cdi))

    got = all_it_got(node, member)

    note(gpu=gpu_slice.model, memory_mb=gpu_slice.memory_mb, **got)
    assert got["is_out_of_memory"]
    assert gpu_slice.memory_mb - OVERHEAD_MB <= got["taken_mb"] <= gpu_slice.memory_mb
    stopped(node, member)
