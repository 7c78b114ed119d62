from pathlib import Path

import pytest

from tools import vocabulary

CANDIDATES = "candidates, or victims once they are chosen"
REPORTED = "reported, said, answered; payload or response as a noun"
ROLE = "the owner, member, user, administrator, or what it is"


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        pytest.param(
            "apps/a.py",
            "def f():\n    prey = 1\n",
            [f"apps/a.py:2: the name prey: say {CANDIDATES}."],
            id="a variable",
        ),
        pytest.param(
            "apps/a.py",
            "class FlockOfTasks: ...\n",
            ["apps/a.py:1: the name FlockOfTasks: say candidate group."],
            id="a part of the name of a class",
        ),
        pytest.param(
            "apps/a.py",
            "def f(free_room): ...\n",
            ["apps/a.py:1: the name free_room: say capacity, free capacity, or space on a disk."],
            id="an argument",
        ),
        pytest.param(
            "apps/a.py",
            "self.told = 1\n",
            [f"apps/a.py:1: the name told: say {REPORTED}."],
            id="an attribute",
        ),
        pytest.param(
            "apps/a.py",
            "def zygote(): ...\n",
            ["apps/a.py:1: the name zygote: say what it is."],
            id="a name without a word of its own",
        ),
        pytest.param(
            "apps/prey.py",
            "",
            [f"apps/prey.py: the module prey: say {CANDIDATES}."],
            id="a module",
        ),
        pytest.param(
            "apps/a.py",
            "x = 1\n# Asks anew.\n",
            ["apps/a.py:2: 'anew': say again."],
            id="a comment",
        ),
        pytest.param(
            "apps/access/a.py",
            '"""The rights of a user."""\n',
            ["apps/access/a.py:1: 'rights': say permissions."],
            id="rights on objects",
        ),
        pytest.param(
            "apps/allocation/a.py",
            '"""The rights to preempt."""\n',
            [],
            id="rights to preempt",
        ),
        pytest.param(
            "apps/a.py",
            'x = """One.\n\nBeside it."""\n',
            ["apps/a.py:3: 'Beside': say next to, or compared with."],
            id="a line of a string",
        ),
        pytest.param(
            "templates/a.html",
            "<p>\nTake back, or taken back</p>\n",
            [
                "templates/a.html:2: 'Take back': say reclaim.",
                "templates/a.html:2: 'taken back': say reclaim.",
            ],
            id="a template",
        ),
        pytest.param(
            "docs/a.md",
            "Whoever owns it.\n",
            [f"docs/a.md:1: 'Whoever': say {ROLE}."],
            id="a role in a document",
        ),
        pytest.param(
            "apps/sparing.py",
            "",
            ["apps/sparing.py: a module is named by a noun, not `sparing`."],
            id="a gerund",
        ),
        pytest.param(
            "tests/test_sparing.py",
            "",
            [
                "tests/test_sparing.py: a module is named by a noun, not `test_sparing`.",
            ],
            id="a gerund at the end",
        ),
        pytest.param("apps/keyring.py", "", [], id="a noun that ends so"),
        pytest.param("apps/a.py", "headroom = mushrooms = 1\n", [], id="a longer word"),
        pytest.param("apps/a.py", "wall_s: WallSeconds = wall_clock()\n", [], id="a wall clock"),
        pytest.param("docs/a.md", "A wall clock that jumps.\n", [], id="a wall clock in prose"),
        pytest.param("apps/a.py", "print(told)\n", [], id="a name that is only read"),
        pytest.param("tests/test_a.py", "# As somebody else.\n", [], id="a role in a test"),
        pytest.param("static/a.png", "prey", [], id="a picture"),
    ],
)
def test_a_banned_word_is_named_with_the_word_to_use(
    tmp_path: Path, name: str, content: str, want: list[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(content)

    assert list(vocabulary.problems_of(name, path)) == want


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("docs/a.md", 1),
        ("docs/decisions/a.md", 1),
        ("CHANGELOG.md", 1),
        ("docs/openapi.yaml", 0),
    ],
)
def test_only_files_that_tools_write_keep_their_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    status: int,
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("The prey.\n")
    monkeypatch.setattr(vocabulary, "ROOT", tmp_path)
    monkeypatch.setattr(vocabulary, "committed_files", lambda: [path])

    assert vocabulary.main([]) == status
    assert vocabulary.main(["apps"]) == 0
    assert capsys.readouterr().out == f"{name}:1: 'prey': say {CANDIDATES}.\n" * status


def test_an_alias_does_not_have_the_name_of_a_class_of_its_app(tmp_path: Path) -> None:
    sources = {
        "apps/one/a.py": "class Plan: ...\nLIMIT = 3\n",
        "apps/one/b.py": "Plan = tuple[int, str]\n",
        "apps/two/c.py": "Plan = tuple[int, str]\nLIMIT = 3\n",
    }
    for name, content in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    found = vocabulary.classes_used_twice({name: tmp_path / name for name in sources})

    assert list(found) == [
        "apps/one/b.py: the alias Plan is a class in apps/one/a.py: rename one of them."
    ]


def test_a_class_of_the_product_stands_for_one_thing(tmp_path: Path) -> None:
    sources = {
        "apps/a.py": "class Plan: ...\nclass TaskForm: ...\nclass _Row: ...\n",
        "rpm/b.py": "class Plan: ...\nclass TaskForm: ...\nclass _Row: ...\n",
        "tests/c.py": "class Plan: ...\n",
    }
    for name, content in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)

    found = vocabulary.classes_used_twice({name: tmp_path / name for name in sources})

    assert list(found) == [
        "rpm/b.py: the class Plan is another one in apps/a.py: rename one of them."
    ]
