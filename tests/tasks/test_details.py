"""Words that do not fit keep their beginning and their end."""

from apps.tasks.details import DETAIL_CHARS, shorten


def test_words_that_fit_stay_as_they_are() -> None:
    assert shorten("x" * DETAIL_CHARS) == "x" * DETAIL_CHARS


def test_of_long_words_the_subject_and_the_cause_are_kept() -> None:
    said = shorten("Image team/train: " + "copying blob\n" * 500 + "manifest unknown")

    assert len(said) == DETAIL_CHARS
    assert said.startswith("Image team/train: ")
    assert said.endswith("manifest unknown")
    assert " [...] " in said
