import pytest

from tools.audit import licences, problem_of

ALLOWED = {"MIT", "Apache-2.0", "BSD-3-Clause"}


@pytest.mark.parametrize(
    ("licence", "is_fine"),
    [
        pytest.param("MIT", True, id="on the list"),
        pytest.param("", False, id="none is named"),
        pytest.param("AGPL-3.0-only", False, id="copyleft"),
        pytest.param("GPL-3.0 OR MIT", True, id="one of two is enough"),
        pytest.param("MIT AND GPL-3.0", False, id="both hold"),
        pytest.param("Apache-2.0 AND BSD-3-Clause", True, id="both are on the list"),
        pytest.param("MIT, GPL-3.0", False, id="classifiers hold together"),
        pytest.param("(MIT OR GPL-3.0)", True, id="in brackets"),
        pytest.param("MITIGATED", False, id="only begins like one"),
    ],
)
def test_a_licence_is_held_against_the_list(licence: str, is_fine: bool) -> None:
    assert (problem_of(licence, ALLOWED) == "") is is_fine


def test_all_dependencies_are_allowed_or_accepted_by_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = licences()

    assert wrong == 0, [line for line in capsys.readouterr().out.splitlines() if "<-" in line]
