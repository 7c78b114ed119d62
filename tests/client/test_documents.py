"""Every command of `rpmctl` in the documentation is one that `rpmctl` understands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from rpm_client.cli.app import app
from rpm_client.cli.scripts import USAGE_ERROR

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "client/README.md",
    "docs/coming-from-slurm.md",
    "docs/command-line.md",
    "docs/configuring.md",
    "docs/installing.md",
)
IN_BLOCKS = re.compile(r"^\s*(?:\S*=\$\()?(?:\.venv/bin/)?rpmctl ([^|)>#\n]*)", re.MULTILINE)
IN_TABLES = re.compile(r"`rpmctl ([^`]+)`")
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    found = {line.strip() for block in BLOCK.findall(text) for line in IN_BLOCKS.findall(block)}
    tables = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    if page == "docs/coming-from-slurm.md":
        found |= set(IN_TABLES.findall(tables))
    return sorted(found)


LINES = [(page, line) for page in PAGES for line in commands(page)]


@pytest.mark.parametrize(("page", "line"), LINES)
def test_a_command_of_the_documentation_is_understood(page: str, line: str) -> None:
    command: Any = get_command(app)
    words = shlex.split(line)

    if "--help" in words or words == ["COMMAND", "--help"]:
        return
    try:
        context = command.make_context("rpmctl", words)
        while hasattr(command, "commands"):
            _, command, words = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            context = command.make_context(command.name, list(words), parent=context)
    except USAGE_ERROR as error:
        pytest.fail(f"{page}: rpmctl {line}: {error}")


def test_the_directives_in_place_of_those_of_slurm_are_options() -> None:
    text = (ROOT / "docs" / "coming-from-slurm.md").read_text()
    table = text.partition("| `#SBATCH` |")[2].partition("\n\n")[0]
    rows = [row.split("|")[2] for row in table.splitlines()[2:]]
    root: Any = get_command(app)

    given = [word for row in rows for word in re.findall(r"--[\w-]+", row)]
    known = {
        option
        for parameter in root.commands["enqueue"].params
        for option in [*parameter.opts, *parameter.secondary_opts]
    }

    assert len(given) > 10
    assert [one for one in given if one not in known] == []
