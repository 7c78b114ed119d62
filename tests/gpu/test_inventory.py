"""The inventory of a real GPU, beside what pynvml says of it."""

import pynvml

from apps.execution.protocol.answers import Probed

MEBIBYTE = 1024 * 1024


def test_every_whole_gpu_is_told_as_pynvml_knows_it(probed: Probed) -> None:
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        known = {
            pynvml.nvmlDeviceGetUUID(one): (
                pynvml.nvmlDeviceGetName(one),
                pynvml.nvmlDeviceGetMemoryInfo(one).total // MEBIBYTE,
            )
            for one in handles
        }
        version = pynvml.nvmlSystemGetDriverVersion()
    finally:
        pynvml.nvmlShutdown()

    assert (probed.nvidia, probed.driver) == ("ok", version)
    parents = {one.parent_uuid for one in probed.devices} - {""}
    told = {one.uuid: (one.model, one.memory_mb) for one in probed.devices if not one.parent_uuid}
    # A GPU that is split is not told; its slices are.
    assert told == {uuid: facts for uuid, facts in known.items() if uuid in told}
    assert set(known) - set(told) >= parents
