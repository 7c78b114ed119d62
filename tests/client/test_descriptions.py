"""What `rpmctl enqueue` makes of a file, a script and options; nothing is sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from typer.testing import Result

from rpm_client import Client, UnreachableError
from rpm_client.cli.output import table
from rpm_client.cli.profiles import read_profiles
from rpm_client.cli.tasks import FEW_COLUMNS
from tests.client.conftest import ctl

ACCESS = {"RPM_URL": "http://127.0.0.1:1", "RPM_TOKEN": "x"}
FILE = """\
name: of the file
volumes: [data]
tags: [2026-11-01]
environment: {A: '1', B: '1', C: '1'}
secrets: {KEY: a}
"""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The tasks that are enqueued."""
    found: list[dict[str, Any]] = []

    def submit(client: Client, description: dict[str, Any]) -> dict[str, Any]:
        found.append(description)
        return {"id": "1", "state": "queued"}

    monkeypatch.setattr(Client, "task_submit", submit)
    return found


def words(done: Result) -> str:
    """The message, without the box as wide as the terminal around it."""
    return " ".join(done.output.replace("│", " ").split())


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.sh"


def test_a_script_adds_to_its_file_and_options_to_both(
    sent: list[dict[str, Any]], script: Path, tmp_path: Path
) -> None:
    file = tmp_path / "task.yaml"
    file.write_text(FILE)
    script.write_text("#RPM --env B=2 --env C=2 --retries 1\nls\n")

    done = ctl(ACCESS, "enqueue", "-f", str(file), "--env", "C=3", str(script))

    assert done.exit_code == 0, done.output
    assert sent[0].pop("command")[0] == "/bin/sh"
    assert sent == [
        {
            "name": "of the file",
            "volumes": ["data"],
            # A date of YAML is text.
            "tags": ["2026-11-01"],
            "environment": {"A": "1", "B": "2", "C": "3"},
            "secrets": {"KEY": "a"},
            "retries": 1,
        }
    ]


@pytest.mark.parametrize("option", ["--dry-run", "--wait", "--json", "--file x", "-f x", "--help"])
def test_options_that_are_not_of_a_task_are_refused_in_a_script(
    sent: list[dict[str, Any]], script: Path, option: str
) -> None:
    script.write_text(f"#!/bin/sh\n#RPM {option}\n")

    done = ctl(ACCESS, "enqueue", str(script))

    assert (done.exit_code, sent) == (2, [])
    assert f"line 2: {option.partition(' ')[0]} is no option of a task" in words(done)


@pytest.mark.parametrize("option", ["--array 5-9", "--time-limit 12:00:00", "--env NOT_SET_HERE"])
def test_a_wrong_value_in_a_script_has_its_line(
    sent: list[dict[str, Any]], script: Path, option: str
) -> None:
    # The first line alone would be wrong.
    script.write_text(f"#RPM --abort-timeout 5s\n#RPM --abort-script {script}\n#RPM {option}\n")

    done = ctl(ACCESS, "enqueue", str(script))

    assert (done.exit_code, sent) == (2, [])
    assert f"line 3: Invalid value for {option.partition(' ')[0]}: " in words(done)


@pytest.mark.parametrize(
    ("text", "want"),
    [("command: [sleep, 5]", "sleep 5"), ("command: sleep 5", "sleep 5"), ("image: 3", "3")],
)
def test_a_task_without_a_name_has_that_of_its_command(
    sent: list[dict[str, Any]], text: str, want: str
) -> None:
    done = ctl(ACCESS, "enqueue", "-f", "-", given=text)

    assert done.exit_code == 0, done.output
    assert sent[0]["name"] == want


def test_what_json_does_not_have_is_refused(sent: list[dict[str, Any]]) -> None:
    values = ("tags: !!set {a}", "retries: .nan", "tags: &a [*a]")

    done = [ctl(ACCESS, "enqueue", "-f", "-", given=text) for text in values]

    assert [one.exit_code for one in done] == [2, 2, 2], [one.output for one in done]
    assert sent == []


def test_the_elements_of_an_array_are_listed_whoever_owns_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    def tasks(_: Client, **filters: Any) -> Iterator[dict[str, Any]]:
        asked.append(filters)
        return iter(())

    monkeypatch.setattr(Client, "tasks", tasks)

    done = ctl(ACCESS, "list", "--array", "7", "--state", "failed")

    assert done.exit_code == 0, done.output
    assert asked == [{"array": "7", "state": "failed", "limit": 50}]
    assert (done.stdout, done.stderr) == ("", "No task matches.\n")


def test_a_narrow_terminal_shows_whole_ids(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    task: dict[str, Any] = {
        "id": str(uuid4()),
        "name": "a-name-that-is-longer-than-its-column",
        "state": "queued",
        "queue": "research-h100",
        "submitted_at": "2026-11-28T22:23:05.123456Z",
        "array_counts": {"running": 2, "left": 5},
    }

    table(FEW_COLUMNS, [task])

    shown = capsys.readouterr().out
    assert task["id"] in shown
    assert "…" not in shown
    assert "05.123" not in shown


def test_a_token_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "account", lambda _: {"username": "alice"})

    done = ctl({"RPM_TOKEN": "t"}, "login", "https://rpm.example.org")
    before = ctl({}, "--profile", "b", "--token", "u", "login", "https://rpm.example.org")

    assert (done.exit_code, before.exit_code) == (0, 0), done.output + before.output
    assert {name: one.token for name, one in read_profiles().items()} == {"default": "t", "b": "u"}


def test_a_name_that_several_have_is_refused_with_their_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"id": 4, "name": "keys"}, {"id": 9, "name": "Keys"}, {"id": 2, "name": "4"}]
    monkeypatch.setattr(Client, "objects", lambda *_: iter(rows))
    monkeypatch.setattr(Client, "object_get", lambda _, path: ({"path": path}, ""))

    several = ctl(ACCESS, "vault", "delete", "keys", "--yes")
    by_id = ctl(ACCESS, "vault", "show", "9")

    assert several.exit_code == 2
    assert "give one of their ids, 4, 9." in words(several)
    assert "vaults/9/" in by_id.stdout


def test_a_page_of_a_proxy_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    page = httpx.Response(
        200, html="<p>Sign in", headers={"etag": '"a"'}, request=httpx.Request("GET", "http://a/")
    )
    monkeypatch.setattr(Client, "_answer", lambda *_, **__: page)

    with Client("http://a", token="x") as client:
        for read in (client.account, client.configuration_export):
            with pytest.raises(UnreachableError, match="answered 200 with text/html"):
                read()
