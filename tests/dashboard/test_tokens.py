"""The colours of the pages can be read, and the stylesheet is the one that they give."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "static" / "src"


@pytest.fixture(scope="module")
def tokens() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tokens", SOURCE / "tokens.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_pair_of_colours_can_be_read_in_both_themes(tokens: ModuleType) -> None:
    assert tokens.failures() == []


def test_a_grey_on_white_that_is_too_pale_is_noticed(
    tokens: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tokens.TOKENS, "ink-3", ("#aaaaaa", "#919aa8"))

    assert "ink-3 on surface, light: 2.32, needs 4.5" in tokens.failures()


def test_contrast_of_black_on_white_is_the_largest_there_is(tokens: ModuleType) -> None:
    assert tokens.contrast("#000000", "#ffffff") == pytest.approx(21)


def test_the_committed_stylesheet_is_the_one_of_these_tokens(tokens: ModuleType) -> None:
    assert (SOURCE / "tokens.css").read_text(encoding="utf-8") == tokens.stylesheet()
