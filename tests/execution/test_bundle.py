"""The helper as it is sent to nodes."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from apps.execution.bundle import helper_files, helper_version, install_program, remote_command
from apps.execution.client import NodeClient
from apps.execution.protocol.answers import MalformedAnswer, decode_installed
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import ProbeRequest
from apps.execution.transport.local import LocalTransport
from tests.services.requirements import need

INSTALLATION = "test0001"
OLDEST = (3, 9)


@pytest.mark.parametrize("name", sorted(helper_files()))
def test_the_helper_imports_itself_and_the_standard_library_only(name: str) -> None:
    tree = ast.parse(helper_files()[name])

    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            is_own = module.startswith("apps.execution.node")
            assert is_own or module.split(".")[0] in sys.stdlib_module_names, module


@pytest.mark.parametrize("name", sorted(helper_files()))
def test_the_helper_is_written_for_the_oldest_python_of_nodes(name: str) -> None:
    ast.parse(helper_files()[name], feature_version=OLDEST)


def test_the_installed_helper_answers_and_an_installation_can_be_repeated(tmp_path: Path) -> None:
    transport = LocalTransport()
    client = NodeClient(transport, INSTALLATION)

    first = client.install(home=str(tmp_path / "home"))
    second = client.install(home=str(tmp_path / "home"))
    transport.home = second.home
    outcome = client.probe(ProbeRequest(installation=INSTALLATION))

    assert first == second
    assert isinstance(outcome, Answered)
    assert outcome.clocks.helper == helper_version()


def test_an_older_python_can_run_the_helper(tmp_path: Path) -> None:
    if _run(["python3.9", "-V"]).returncode != 0:
        need("Python 3.9", because="there is none; its syntax was checked without it")
    home = str(tmp_path / "home")
    request = {"verb": "probe", "protocol": 1, "installation": INSTALLATION}

    installed = _run(["python3.9", "-"], install_program(INSTALLATION, home=home))
    answer = _run(["python3.9", "-ES", f"{home}/helper"], json.dumps(request).encode())

    assert decode_installed(installed.stdout).home == home
    assert json.loads(answer.stdout)["answer"]["python"].startswith("3.9.")


def test_a_python_that_is_too_old_says_so() -> None:
    program = install_program(INSTALLATION).replace(b"(3, 9)", b"(99, 0)", 1)

    done = subprocess.run([sys.executable, "-"], input=program, capture_output=True, check=True)

    with pytest.raises(MalformedAnswer, match=r"Python 3\.9 or newer is needed"):
        decode_installed(done.stdout)


@pytest.mark.parametrize("home", ["relative", "/a b", "/x;rm", "/$(x)", "/x\n"])
def test_a_folder_that_a_shell_could_misread_is_refused(home: str) -> None:
    with pytest.raises(ValueError, match="folder"):
        remote_command(home)


def test_the_remote_command_holds_nothing_but_the_folder() -> None:
    assert remote_command("/var/lib/rpm/abcd") == "python3 -ES /var/lib/rpm/abcd/helper"


def _run(command: list[str], content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, input=content, capture_output=True, check=False)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, b"", b"")
