"""`rpmctl config`: the configuration as a file, against a real server."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.models import Revision
from rpm_client import Client, RefusedError
from rpm_client.cli import app as cli
from rpm_client.cli import configuration
from tests.allocation.state import enqueue, make_node
from tests.client.conftest import ctl
from tests.people import Example

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("example")]
WEIGHT = "policies:\n  - name: Dev\n    weight: 3\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "rpm.yaml"
    found.write_text(WEIGHT)
    return found


def revisions() -> int:
    return Revision.objects.count()


def connected(access: dict[str, str]) -> Client:
    return Client(access["RPM_URL"], key=access["RPM_KEY"], secret=access["RPM_SECRET"])


def refusal(done: Result) -> str:
    assert isinstance(done.exception, RefusedError), done.output
    return done.exception.detail


def test_an_export_is_edited_compared_and_applied(
    administration: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "rpm.yaml"
    exported = ctl(administration, "config", "export", "-o", str(path))
    same = ctl(administration, "config", "diff", str(path), "--exit-code")
    assert exported.exit_code == 0, exported.output
    assert (same.exit_code, same.stdout) == (0, "Nothing would change.\n"), same.output
    assert path.read_text() == ctl(administration, "config", "export").stdout

    text = path.read_text()
    path.write_text(text.replace("weight: 1\n", "weight: 3\n", 1))
    before = revisions()
    different = ctl(administration, "config", "diff", str(path), "--exit-code")
    plain = ctl(administration, "config", "diff", str(path))
    tried = ctl(administration, "config", "apply", str(path), "--dry-run")
    assert different.exit_code == configuration.CHANGED, different.output
    assert different.stdout == "policy Dev: weight changed: 1 to 3\nNo task is affected.\n"
    assert (plain.exit_code, plain.stdout) == (0, different.stdout)
    assert tried.stdout == "policy Dev: weight changed: 1 to 3\nNothing is applied.\n"
    assert revisions() == before

    applied = ctl(administration, "config", "apply", str(path), "--note", "commit 7")
    again = ctl(administration, "config", "apply", str(path))
    newest = Revision.objects.latest("number")
    assert applied.stdout == (
        f"policy Dev: weight changed: 1 to 3\nApplied; revision {newest.number}.\n"
    )
    assert (newest.note, revisions()) == ("commit 7", before + 1)
    assert (again.exit_code, again.stdout) == (0, "Nothing changed.\n")


def test_the_input_and_json_serve_programs(administration: dict[str, str]) -> None:
    exported = ctl(administration, "config", "export", "--json")
    same = ctl(administration, "config", "diff", "-", "--json", given=exported.stdout)
    # As JSON writes it; YAML reads other characters there.
    group = json.dumps({"groups": [{"name": "Vision \N{ROBOT FACE}"}]})
    applied = ctl(administration, "config", "apply", "-", "--json", given=group)

    assert json.loads(same.stdout)["changes"] == [], same.output
    assert [one["name"] for one in json.loads(applied.stdout)["changes"]] == [
        "Vision \N{ROBOT FACE}"
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            "policies:\n  - name: Dev\n    weigth: 3\n", "policies[0].weigth", id="unknown field"
        ),
        pytest.param("pools: [\n", "This is not YAML", id="not YAML"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(
    administration: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: Path,
    text: str,
    words: str,
) -> None:
    file.write_text(text)
    for name, value in administration.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["rpmctl", "config", "apply", str(file)])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith(f"invalid: {words}"), error
    assert "line " in error
    assert error.count("\n") == 1


def test_a_later_revision_is_not_overwritten(administration: dict[str, str], file: Path) -> None:
    known = json.loads(ctl(administration, "config", "diff", str(file), "--json").stdout)
    number = known["revision"]
    ctl(administration, "config", "apply", str(file), "--note", "of another user")
    file.write_text(WEIGHT.replace("3", "5"))

    done = ctl(administration, "config", "apply", str(file), "--revision", str(number))
    now = ctl(administration, "config", "apply", str(file), "--revision", str(number + 1))

    assert "of another user" in refusal(done)
    assert now.exit_code == 0, now.output


def test_a_removal_is_confirmed(
    administration: dict[str, str], file: Path, example: Example
) -> None:
    words = ("config", "apply", str(file))
    text = f"policies:\n- name: {example.dev_queue.policy.name}\n  queues: []\n"
    file.write_text(text)
    prune = ("--prune", "queues")

    refused = ctl(administration, *words, *prune, given="n\n")
    unchanged = ctl(administration, *words)
    assert refused.exit_code == 1, refused.output
    assert f"queue {example.dev_queue.name} removed" in refused.stderr
    assert unchanged.stdout == "Nothing changed.\n"
    tried = ctl(administration, *words, *prune, "--dry-run")
    assert f"queue {example.dev_queue.name} removed" in tried.stdout

    confirmed = ctl(administration, *words, *prune, given="y\n")
    assert confirmed.exit_code == 0, confirmed.output
    assert f"queue {example.dev_queue.name} removed\n" in confirmed.stdout
    example.dev_queue.refresh_from_db()
    assert example.dev_queue.removed_at is not None


def test_what_changes_during_the_question_is_not_overwritten(
    administration: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    file: Path,
    example: Example,
) -> None:
    file.write_text(f"remove:\n  queues: [{example.dev_queue.name}]\n")

    def confirm(*_: object, **__: object) -> bool:
        with connected(administration) as client:
            client.configuration_apply(WEIGHT.encode(), note="of another user")
        return True

    monkeypatch.setattr("typer.confirm", confirm)

    done = ctl(administration, "config", "apply", str(file))

    assert "of another user" in refusal(done)
    example.dev_queue.refresh_from_db()
    assert example.dev_queue.removed_at is None


def test_preempting_is_shown_and_confirmed(
    administration: dict[str, str],
    file: Path,
    example: Example,
    alice: User,
    charlie: User,
) -> None:
    make_node(example.bare_metal, name="b1", gpus=8)
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    enqueue(charlie, example.research_queue, 1)
    run_pass()
    file.write_text("policies: [{name: Dev, reserved: {}}]\n")
    before = revisions()

    compared = ctl(administration, "config", "diff", str(file))
    refused = ctl(administration, "config", "apply", str(file), given="n\n")

    lines = compared.stdout.splitlines()
    assert lines[0] == 'policy Dev: reserved changed: {"gpu": "8"} to {}'
    assert "     1  would be preempted" in lines
    assert [line for line in lines if line.startswith(("preempt ", "start "))]
    assert refused.exit_code == 1
    assert "1 would be preempted\nApply it?" in refused.stderr
    assert revisions() == before


def test_a_removal_needs_yes_where_nobody_can_answer(
    administration: dict[str, str], file: Path, example: Example
) -> None:
    file.write_text(f"remove:\n  queues: [{example.dev_queue.name}]\n")

    refused = ctl(administration, "config", "apply", str(file))
    sure = ctl(administration, "config", "apply", str(file), "--yes")

    assert (refused.exit_code, "give --yes" in refused.stderr) == (1, True), refused.output
    assert sure.exit_code == 0, sure.output


def test_what_cannot_be_sent_is_refused_here(
    administration: dict[str, str], tmp_path: Path, file: Path
) -> None:
    large, empty = tmp_path / "large.yaml", tmp_path / "empty.yaml"
    large.write_text("#" * (configuration.FILE_BYTES + 1))
    empty.write_text("\n")
    names = [str(large), str(empty), str(tmp_path / "none.yaml"), str(tmp_path)]

    done = [ctl(administration, "config", "apply", name) for name in names]
    unwritable = ctl(administration, "config", "export", "-o", str(tmp_path))

    assert [one.exit_code for one in (*done, unwritable)] == [2, 2, 2, 2, 2]


def test_the_bound_of_a_file_is_that_of_the_server(administration: dict[str, str]) -> None:
    with connected(administration) as client:
        fits = client.configuration_diff(b"policies: []\n".ljust(configuration.FILE_BYTES, b"#"))
        with pytest.raises(RefusedError) as refused:
            client.configuration_diff(b"policies: []\n".ljust(configuration.FILE_BYTES + 1, b"#"))

    assert not fits["is_changed"]
    assert refused.value.status == 413


def test_a_user_is_refused(access: dict[str, str], example: Example, file: Path) -> None:
    done = [
        ctl(access, "config", "export"),
        ctl(access, "config", "diff", str(file)),
        ctl(access, "config", "apply", str(file)),
    ]

    assert [one.exception.status for one in done if isinstance(one.exception, RefusedError)] == [
        403,
        403,
        403,
    ]
