"""How much a task uses a real GPU, as the node's samples say."""

from collections.abc import Callable
from typing import Any

from apps.execution.protocol.answers import DeviceReport
from apps.execution.protocol.requests import AllocatedDevice
from tests.execution.nodes import TestedNode
from tests.gpu.test_shares import started, stopped
from tests.services.ports import wait_until

# A program that only writes memory keeps the GPU busy by NVML's own measure: some kernel runs.
BUSY_PERCENT = 50


def test_a_gpu_at_work_and_one_at_rest_tell_their_use_and_power(
    node: TestedNode, whole_gpu: DeviceReport, note: Callable[..., None]
) -> None:
    def sample() -> DeviceReport:
        return next(one for one in node.probe().answer.devices if one.uuid == whole_gpu.uuid)

    rest = sample()
    member = started(node, "busy", AllocatedDevice(whole_gpu.uuid, whole_gpu.cdi))
    node.wait_for_log(member, b"busy")
    wait_until(lambda: (sample().utilisation_percent or 0) >= BUSY_PERCENT, what="a GPU at work")
    busy = sample()
    stopped(node, member)
    wait_until(lambda: sample().utilisation_percent == 0, what="a GPU at rest")

    figures: dict[str, Any] = {
        "percent": [rest.utilisation_percent, busy.utilisation_percent],
        "power_mw": [rest.power_mw, busy.power_mw],
        "used_mb": [rest.used_mb, busy.used_mb],
    }
    note(gpu=whole_gpu.model, **figures)
    assert rest.power_mw is not None
    assert busy.power_mw is not None
    assert busy.power_mw > rest.power_mw
