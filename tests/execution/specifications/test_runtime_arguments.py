"""Whatever a launch asks for reaches the runtime byte for byte, or is refused with a reason.

Through a real sshd and the real helper, up to the argument list, the environment file and the
secrets that the runtime is handed.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any

from apps.execution.node.environment import is_replaced
from apps.execution.protocol.answers import Refusal
from tests.execution.specifications.generator import PIECES, Generator, plain
from tests.execution.specifications.recorded_node import Record, RecordedNode

AT_ONCE = 8
# Of every image, by the recorder's word.
IMAGE_NUMBER = f"sha256:{7:064}"
BATCH = 200
# Options that say the same of every container, or repeat amounts and ids that are numbers.
FIXED = {
    "--cap-drop=all", "--http-proxy=false", "--image-volume=ignore", "--ipc=private",
    "--log-driver=passthrough", "--no-healthcheck", "--pid=private", "--pids-limit=100",
    "--pull=never", "--security-opt=no-new-privileges", "--systemd=false", "--uts=private",
}  # fmt: skip
OF_THE_MEMBER = {"--env-file", "--hostname", "--label", "--name", "--pidfile", "--secret"}
OF_NUMBERS = {"--cpus", "--memory", "--memory-swap", "--shm-size", "--user"}
AS_REQUESTED = {"--device", "--mount", "--network", "--workdir"}
# What the runtime finds on any node, whatever its own shell sets.
OF_THE_NODE = {"HOME", "PATH", "_"}
# What a container finds next to the variables that were asked for.
GIVEN = {
    "CUDA_VISIBLE_DEVICES", "LD_AUDIT", "LD_PRELOAD", "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES", "RPM_CHECKPOINT_FILE", "RPM_DEVICES",
}  # fmt: skip


def test_every_specification_arrives_byte_for_byte_or_is_refused(
    recording_node: RecordedNode,
    recorded: int,
    seed: int,
    say: Callable[[str], None],
    tmp_path: Path,
) -> None:
    canary = tmp_path / "canary"
    generator = Generator(seed, canary=str(canary))
    counts: Counter[str] = Counter()
    clocks = recording_node.clocks
    # After what a seed draws, each piece by itself: nothing that an argument can hold is refused
    # for what it says.
    alone = [
        plain(piece.replace("{canary}", str(canary))) for piece in PIECES if _is_carried(piece)
    ]
    cases = enumerate(chain((generator.fields() for _ in range(recorded)), alone))

    def tried(case: tuple[int, dict[str, Any]]) -> str:
        number, fields = case
        outcome = recording_node.launch(number, fields, clocks)
        if isinstance(outcome, Refusal):
            assert number < recorded, (fields, outcome)
            return _refused(outcome)
        assert_arrived_as_requested(outcome, fields)
        return "byte for byte"

    with ThreadPoolExecutor(AT_ONCE) as threads:
        # In batches: a fault ends the test while the rest is not even made.
        while batch := list(islice(cases, BATCH)):
            counts.update(threads.map(tried, batch))

    say(f"Seed {seed}: {recorded} specifications up to the runtime: {dict(counts)}")
    assert not canary.exists()
    assert counts.total() == recorded + len(alone)
    assert counts["refused"] > recorded // 10


def _is_carried(piece: str) -> bool:
    return "\0" not in piece and piece.encode("utf-8", "ignore").decode() == piece


def _refused(refusal: Refusal) -> str:
    assert refusal.code in {"invalid", "image_missing"}, refusal
    field, _, reason = refusal.detail.partition(": ")
    assert field, refusal
    assert reason, refusal
    return "refused"


def assert_arrived_as_requested(record: Record, fields: dict[str, Any]) -> None:
    """The record is what the fields ask for: nothing more, nothing less, nothing changed."""
    asked = "".join(record.arguments[:2])
    assert asked == "podmanrun"
    assert record.operands == [IMAGE_NUMBER, *fields["command"]]
    names = {option.partition("=")[0] for option in record.options if option not in FIXED}
    read_only = {"--read-only"} if fields.get("read_only") is True else set()
    assert names - read_only <= OF_THE_MEMBER | OF_NUMBERS | AS_REQUESTED, names
    assert names >= read_only
    assert set(record.options) >= FIXED
    assert record.values("--user") == [f"{fields['uid']}:{fields['gid']}"]
    # Also where the image says so: podman would make its folder.
    assert record.values("--workdir") == ["/" + (fields.get("working_dir") or "/").strip("/")]
    *mounts, checkpoint = record.values("--mount")
    assert mounts == [_mount(volume) for volume in fields.get("volumes", [])]
    assert checkpoint.endswith(",destination=/run/rpm-checkpoint")
    wanted_devices = [one["cdi"] for one in fields.get("devices", []) if one["cdi"]]
    assert record.values("--device") == wanted_devices
    assert record.secrets == fields.get("secrets", {})
    _variables_arrived(record, fields)
    for value in fields.get("secrets", {}).values():
        output = "\0".join((*record.options, *record.environment, *record.variables.values()))
        assert not value or value not in output


def _variables_arrived(record: Record, fields: dict[str, Any]) -> None:
    files = {f"{name}_FILE": f"/run/secrets/{name}" for name in fields.get("secrets", {})}
    wanted = {
        name: value
        for name, value in (fields["environment"] | files).items()
        if not is_replaced(name)
    }
    assert {name: record.variables[name] for name in wanted} == wanted
    assert record.variables.keys() - wanted.keys() <= GIVEN
    names = {one.partition("=")[0] for one in record.environment}
    assert not names & wanted.keys() - OF_THE_NODE


def _mount(volume: dict[str, Any]) -> str:
    option = ",readonly" if volume["read_only"] else ""
    return f"type=bind,source={volume['source']},destination={volume['target']}{option}"
