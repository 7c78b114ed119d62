"""Launch specifications through a real podman, read back inside the container."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.execution.node.environment import is_replaced
from apps.execution.protocol.answers import Refusal
from apps.execution.protocol.requests import MemberKey
from tests.execution.nodes import TestedNode, installed_ssh
from tests.execution.specifications.generator import Generator
from tests.execution.specifications.recorded_node import launched
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode

AT_ONCE = 3
# Tells what the first process of the container was given, each thing with its size before it. The
# kernel says how the process was started: no shell has a hand in that.
SCRIPT = """\
tell() { wc -c < "$1"; cat "$1"; }
tell /proc/$$/cmdline
tell /proc/$$/environ
echo "$PWD"
left=$1; shift
while [ "$left" -gt 0 ]; do tell "$1"; shift; left=$((left - 1)); done
"""
# What a container finds next to the variables that were asked for.
GIVEN = {
    "CUDA_VISIBLE_DEVICES", "HOME", "HOSTNAME", "LD_AUDIT", "LD_PRELOAD",
    "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES", "PATH", "RPM_CHECKPOINT_FILE",
    "RPM_DEVICES", "TERM",
    "container",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A specification that tells, and what it should tell."""

    fields: dict[str, Any]
    contents: Sequence[bytes]


def test_what_the_container_finds_is_what_was_asked(
    ssh_node: SshdNode,
    podman: PodmanStore,
    contained: int,
    seed: int,
    say: Callable[[str], None],
    tmp_path: Path,
) -> None:
    canary = Path("/tmp") / f"canary-{tmp_path.name}"
    node = installed_ssh(ssh_node, podman.environment)
    generator = Generator(seed + 1, canary=str(canary))
    clocks = node.probe().clocks
    cases = [generator.fields() | {"image": podman.image} for _ in range(contained)]

    def tried(number: int) -> str:
        case = telling(cases[number], tmp_path / str(number))
        outcome = launched(node.client, f"spec{number}", case.fields, clocks)
        if isinstance(outcome, Refusal):
            assert outcome.code in {"invalid", "start_failed"}, outcome
            assert outcome.detail
            return outcome.code
        # A view of the node of its own: what others wait for is nothing to it.
        output = read_back(TestedNode(node.client), MemberKey(f"spec{number}", 1, 0))
        assert_as_requested(output, case)
        return "byte for byte"

    with ThreadPoolExecutor(AT_ONCE) as threads:
        counts = Counter(threads.map(tried, range(contained)))

    say(f"Seed {seed + 1}: {contained} specifications through podman: {dict(counts)}")
    assert not canary.exists()
    assert counts["byte for byte"] > contained // 4


def telling(fields: dict[str, Any], folder: Path) -> Case:
    """The same specification, its volumes really there and its command behind a script."""
    files, contents = [], []
    volumes = [dict(volume) for volume in fields.get("volumes", [])]
    for index, volume in enumerate(volumes):
        if not _made(folder, index, volume):
            continue
        files.append(f"{volume['target']}/mark")
        contents.append(f"mark {index}".encode())
    for name, value in fields.get("secrets", {}).items():
        files.append(f"/run/secrets/{name}")
        contents.append(value.encode("utf-8", "replace"))
    telling = ["sh", "-c", SCRIPT, "sh", str(len(files)), *files]
    command = [*telling, *fields["command"]]
    return Case(fields | {"command": command, "volumes": volumes}, contents)


def _made(folder: Path, index: int, volume: dict[str, Any]) -> bool:
    """Make the volume's source below the folder, where the file system can hold such a name."""
    source = f"{folder}/{index}{volume['source']}"
    try:
        Path(source).mkdir(parents=True)
    except (OSError, ValueError):
        return False
    volume["source"] = source
    (Path(source) / "mark").write_text(f"mark {index}")
    return True


def read_back(node: TestedNode, member: MemberKey) -> bytes:
    """What the member wrote until its end."""
    ended = node.wait_for_exit(member)
    assert ended.exit_code == 0, (ended, node.logs[member][-500:])
    # Acknowledged, so that the next ones are found among few; those of others may stay.
    while any(one.member == member for one in node.sync(member).members):
        pass
    return node.logs.pop(member)


def assert_as_requested(output: bytes, case: Case) -> None:
    """The output is the case: its command, its variables, its folder, its files."""
    command, output = _next(output)
    environment, output = _next(output)
    where, _, output = output.partition(b"\n")
    assert command == b"".join(one.encode() + b"\0" for one in case.fields["command"])
    assert where.decode() == (case.fields.get("working_dir") or "/")
    for content in case.contents:
        found, output = _next(output)
        assert found == content
    assert output == b""
    _variables_found(environment, case.fields)


def _variables_found(environment: bytes, fields: dict[str, Any]) -> None:
    pairs = (one.decode().partition("=") for one in environment.split(b"\0")[:-1])
    found = {name: value for name, _, value in pairs}
    files = {f"{name}_FILE": f"/run/secrets/{name}" for name in fields.get("secrets", {})}
    asked = {k: v for k, v in (fields["environment"] | files).items() if not is_replaced(k)}
    assert {name: found.get(name) for name in asked} == asked
    assert found.keys() - asked.keys() <= GIVEN


def _next(output: bytes) -> tuple[bytes, bytes]:
    size, _, rest = output.partition(b"\n")
    return rest[: int(size)], rest[int(size) :]
