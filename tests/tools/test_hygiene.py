from pathlib import Path

import pytest

from tools import hygiene

INDEX = "index" + "-url"
HOME = Path("/home", "ada")


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        pytest.param("README.md", "plain text\n", [], id="plain text is fine"),
        pytest.param(
            "package-lock.json",
            '{\n "resolved": "https://host/x.tgz"}',
            ["package-lock.json:2: a download address."],
            id="a lock of npm names where it came from",
        ),
        pytest.param(
            "requirements/run.txt",
            f"--{INDEX} https://host/simple\n",
            ["requirements/run.txt:1: a download address."],
            id="a lock of pip names its index",
        ),
        pytest.param(
            "docs/a.md",
            "see /home/" + "ada/rpm for it\n",
            ["docs/a.md:1: a path of this machine."],
            id="a path in one's own home",
        ),
        pytest.param("docs/a.md", "see /home/USER/rpm\n", [], id="a placeholder for a home"),
        pytest.param(
            "apps/a.py",
            "x = 1\n" * 401,
            ["apps/a.py: 401 lines; a module holds at most 400."],
            id="a module that grew too long",
        ),
        pytest.param("apps/a/migrations/0001.py", "x = 1\n" * 401, [], id="long migrations"),
        pytest.param(
            "templates/a.html",
            f"<p>\n{'x' * 121}\n</p>",
            ["templates/a.html:2: 121 columns; a line has at most 120."],
            id="a line of a template that is too long",
        ),
        pytest.param(
            "docs/a.png",
            "\0" * 300_001,
            ["docs/a.png: 300001 bytes; a file holds at most 300000."],
            id="a file that is too large",
        ),
        pytest.param("docs/openapi.yaml", "a: 1\n" * 100_000, [], id="a schema that grew"),
        pytest.param(
            "docs/openapi.yaml",
            "a: 1\n" * 200_001,
            ["docs/openapi.yaml: 1000005 bytes; a file holds at most 1000000."],
            id="a schema that is too large",
        ),
    ],
)
def test_what_must_not_be_committed_is_named(
    tmp_path: Path, name: str, content: str, want: list[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)

    assert list(hygiene.problems_of(path, root=tmp_path, home=HOME)) == want


def test_a_path_of_this_checkout_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text(f"first\nrun {tmp_path}/manage.py\n")

    assert list(hygiene.problems_of(path, root=tmp_path)) == ["notes.md:2: a path of this machine."]


def test_the_repository_is_looked_at_as_git_sees_it() -> None:
    names = {path.relative_to(hygiene.ROOT).as_posix() for path in hygiene.committed_files()}

    assert "Makefile" in names
    assert not any(name.startswith((".venv/", "node_modules/")) for name in names)
