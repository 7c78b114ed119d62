"""The inventory of a real GPU, compared with what pynvml says of it."""

import pynvml

from apps.execution.protocol.answers import NodeInventory

MEBIBYTE = 1024 * 1024


def test_every_whole_gpu_is_reported_as_pynvml_knows_it(inventory: NodeInventory) -> None:
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

    assert (inventory.nvidia, inventory.driver) == ("ok", version)
    parents = {one.parent_uuid for one in inventory.devices} - {""}
    reported = {
        one.uuid: (one.model, one.memory_mb) for one in inventory.devices if not one.parent_uuid
    }
    # A GPU that is split is not reported; its slices are.
    assert reported == {uuid: facts for uuid, facts in known.items() if uuid in reported}
    assert set(known) - set(reported) >= parents
