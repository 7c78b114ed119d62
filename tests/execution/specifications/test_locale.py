"""The locale of a node's account has no say in what a task gets."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.execution.nodes import TestedNode, installed_local, member_of
from tests.services.sshd import kill_helpers


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestedNode]:
    """This machine as a node."""
    home = str(tmp_path / "home")
    yield installed_local(home)
    kill_helpers(home)


def test_a_task_gets_utf_8_from_a_helper_whose_locale_is_ascii(
    node: TestedNode, tmp_path: Path
) -> None:
    folder = tmp_path / "日"
    folder.mkdir()
    request = node.launch_request(
        "sh", "-c", 'printf "%s " "$1" "$V"; pwd', "sh", "ü", environment={"V": "日本語"},
        working_dir=str(folder),
    )  # fmt: skip
    # Python would take UTF-8 in place of the locale C by itself, but not of others.
    helper = [sys.executable, "-X", "utf8=0", "-ES", f"{tmp_path}/home/helper"]

    done = subprocess.run(
        helper,
        env=os.environ | {"LC_ALL": "C"},
        input=msgspec.json.encode(request),
        capture_output=True,
        check=True,
    )

    assert "answer" in json.loads(done.stdout), done.stdout
    assert node.wait_for_exit(member_of(request)).exit_code == 0
    assert node.logs[member_of(request)].decode() == f"ü 日本語 {folder}\n"
