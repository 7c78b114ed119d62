"""The commands in docs/installing.md exist, with their options."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from apps.policies.document import parse
from tests.install.__main__ import REPLACED
from tests.install.blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = blocks()
TEXT = "".join(block.text for block in BLOCKS).replace("\\\n", "")
PROGRAMS = {
    "rpm-manage": [sys.executable, "manage.py"],
    "rpmctl": [sys.executable, "-m", "rpm_client"],
}
# A command ends where its line, its pipe or its substitution does.
COMMAND = re.compile(r"\b(rpm-manage|rpmctl) +([a-z][^|)>\n]*)")


def commands() -> list[tuple[str, str]]:
    return sorted({(found[1], found[2].strip()) for found in COMMAND.finditer(TEXT)})


def verbs(words: list[str]) -> list[str]:
    """The command and, where there is one, its verb."""
    return words[:2] if words[0] in {"node", "person"} else words[:1]


def test_the_document_is_read() -> None:
    headings = list(dict.fromkeys(block.heading for block in BLOCKS))

    assert (headings[0], headings[-1]) == ("Programs", "Undoing the installation")
    assert {"First task", "Upgrade", "Backup, and another machine"} <= set(headings)
    assert {block.machine for block in BLOCKS} == {"rpm", "gpu01", "second"}
    assert [old for old in REPLACED if old not in TEXT.replace("rpm-manage  ", "rpm-manage ")] == []


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.heading} {block.machine}")
def test_the_shell_understands_every_block(block: Block) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=block.text, check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("program", "line"), commands())
def test_a_command_is_there_and_knows_its_options(program: str, line: str) -> None:
    words = shlex.split(line.partition(" -- ")[0], comments=True)

    done = subprocess.run(
        [*PROGRAMS[program], *verbs(words), "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "client")},
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert [word for word in options if word not in done.stdout] == []


def test_files_that_are_named_are_there() -> None:
    named = re.findall(r"/opt/rpm/(docker/[\w./-]+)", TEXT)
    copied = re.search(r"^cp (.+) /etc/systemd/system/$", TEXT, re.MULTILINE)

    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert copied is not None
    units = ROOT / "docker" / "systemd"
    assert all(list(units.glob(pattern)) for pattern in copied[1].split())
    started = re.findall(r"\brpm-(?:web|sockets|streams|beat|nodes@|worker@|backup\.timer)", TEXT)
    found = {path.name for path in units.iterdir()}
    assert {name if "." in name else f"{name}.service" for name in started} <= found


def test_the_first_resources_are_a_document() -> None:
    found = re.search(r"<<'END'\n(.*?)^END$", TEXT, re.MULTILINE | re.DOTALL)

    assert found is not None
    document = parse(yaml.safe_load(found[1]))
    assert [pool.name for pool in document.pools] == ["H100"]
    assert [profile.name for profile in document.profiles] == ["One GPU"]
