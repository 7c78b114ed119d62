"""What is wrong with the variables stops the start with a sentence."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rpm import env
from rpm.variables import NAMES, OTHERS, misspelt_names

ROOT = Path(__file__).resolve().parents[2]
# Of the start of every line; those of servers come by way of handlers of theirs.
LOGS = """
import logging, logging.config
logging.config.dictConfig({"version": 1, "handlers": {"own": {"class": "logging.StreamHandler"}},
    "loggers": {"uvicorn": {"handlers": ["own"], "propagate": False},
                "gunicorn.error": {"handlers": ["own"], "propagate": False}}})
import rpm.wsgi
for name in ("uvicorn.error", "gunicorn.error"):
    logging.getLogger(name).warning("a line")
"""
BEAT = """
from celery.bin.celery import celery
import rpm.celery
app = rpm.celery.app
app.log.setup(loglevel="INFO")
import logging
logging.getLogger("celery.beat").warning("a line")
"""


def start(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: one for name, one in os.environ.items() if name != "RPM_HOME"}
    home = {} if "RPM_ENV_FILE" in variables else {"RPM_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=kept | home | {"HOME": str(folder)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param(
            {"RPM_LOG_LEVEL": "NONSENSE"},
            "RPM_LOG_LEVEL='NONSENSE' is not known; use one of DEBUG",
            id="a level",
        ),
        pytest.param(
            {"RPM_PAS_EVERY_S": "7"},
            "RPM_PAS_EVERY_S is not known; RPM_PASS_EVERY_S is.",
            id="a name",
        ),
        pytest.param(
            {"RPM_METRICS_TOKEN": "changeme"},
            "RPM_METRICS_TOKEN is too short for a secret: use 32 characters or more.",
            id="a token that is easy to guess",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, variables: dict[str, str], words: str
) -> None:
    done = start("import rpm.settings", tmp_path, **variables)

    assert done.returncode == 1
    assert done.stderr.startswith(words)
    assert done.stderr.count("\n") == 1


def test_a_second_installation_is_not_made_next_to_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rpm.env"
    file.write_text("RPM_HOME=/var/lib/rpm\n")
    for name in ("RPM_HOME", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RPM_ENV_FILE", str(file))

    with pytest.raises(env.BadEnvironment, match=r"rpm\.env describes .* is not loaded"):
        env.home()

    assert not (tmp_path / ".local").exists()
    monkeypatch.setenv("RPM_HOME", str(tmp_path / "home"))
    assert env.home().path == (tmp_path / "home").resolve()
    monkeypatch.delenv("RPM_HOME")
    monkeypatch.setenv("RPM_ENV_FILE", "")
    assert env.home().path == (tmp_path / ".local/share/rpm-manager").resolve()


def test_names_of_other_programs_are_left_alone() -> None:
    others = ["RPM_BUILD_ROOT", "RPM_OPT_FLAGS", "RPM_TASK_ID", "RPM_RANK", "RPM_ATTEMPT"]

    assert misspelt_names([*others, *OTHERS, *NAMES, "RPM_SECRET_KEY_FILE", "RPM_VAULT_FILE"]) == {}
    assert misspelt_names(["RPM_HOSTSS_FILE"]) == {"RPM_HOSTSS_FILE": "RPM_HOSTS"}


def test_the_names_are_those_that_are_read_and_each_is_in_the_documentation() -> None:
    sources = [*(ROOT / "rpm").rglob("*.py"), *(ROOT / "apps").rglob("*.py")]
    asked = r'(?:text|flag|number|words|networks)\(\s*"(RPM_\w+)"|secret\([^)]*"(RPM_\w+)"'
    read = {
        name
        for path in sources
        for found in re.findall(asked, path.read_text(encoding="utf-8"))
        for name in found
        if name
    }
    docs = "".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("operating.md", "people.md")
    )
    rows = "\n".join(line for line in docs.splitlines() if line.startswith("|"))

    assert read <= NAMES
    assert {name for name in read if f"`{name}`" not in rows} == set()


@pytest.mark.parametrize("code", [LOGS, BEAT], ids=["servers", "beat"])
def test_every_line_of_a_log_is_json(tmp_path: Path, code: str) -> None:
    done = start(code, tmp_path)

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert "a line" in [line["event"] for line in lines]
    assert done.returncode == 0
