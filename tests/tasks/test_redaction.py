"""The values that are hidden from every reader."""

from collections.abc import Iterator
from typing import Any

import pytest

from apps.core.keyring import HIDDEN
from apps.core.wildcards import Wildcards
from apps.tasks.redaction import keep_hidden_values, redact, secret_names


@pytest.mark.parametrize(
    "name",
    [
        "MY_SECRET_KEY",
        "HF_TOKEN",
        "wandb_token",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "AZURE_STORAGE_KEY",
    ],
)
def test_secrets_are_hidden(name: str) -> None:
    assert redact({name: "value"}, []) == {name: HIDDEN}


def test_other_values_are_shown() -> None:
    assert redact({"PATH": "/bin", "AWS_ACCESS_KEY_ID": "x"}, []) == {
        "PATH": "/bin",
        "AWS_ACCESS_KEY_ID": "x",
    }


def test_an_installation_has_its_own_list(settings: Any) -> None:
    settings.RPM_REDACTED_VARIABLES = ["wandb_*"]

    assert redact({"WANDB_API_KEY": "x", "MY_TOKEN": "y"}, []) == {
        "WANDB_API_KEY": HIDDEN,
        "MY_TOKEN": "y",
    }


def test_what_was_read_hidden_and_comes_back_stays_as_it_was() -> None:
    assert keep_hidden_values({"A": HIDDEN, "B": "new", "C": HIDDEN}, {"A": "1", "B": "2"}) == {
        "A": "1",
        "B": "new",
        "C": HIDDEN,
    }


def test_an_owner_can_hide_more() -> None:
    environment = {"WANDB_KEY": "a", "MY_TOKEN": "b", "PATH": "/bin"}

    assert redact(environment, ["wandb_*"]) == {
        "WANDB_KEY": HIDDEN,
        "MY_TOKEN": HIDDEN,
        "PATH": "/bin",
    }


def test_a_name_is_read_once_whatever_the_patterns() -> None:
    reads = 0

    class Counted(str):
        __slots__ = ()

        def upper(self) -> str:
            return self

        def __iter__(self) -> Iterator[str]:
            nonlocal reads
            for char in str(self):
                reads += 1
                yield char

    own = ["*" + "?A" * 62 + f"B{number}*" for number in range(100)]
    names = [Counted("A" * 250 + f"{number:04d}") for number in range(10)]

    assert secret_names(names, own) == frozenset()
    assert reads == 10 * 254


def test_which_variables_are_secret_is_decided_once_for_many_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Wildcards.match
    matches: list[str] = []

    def match(self: Wildcards, name: str) -> bool:
        matches.append(name)
        return plain(self, name)

    monkeypatch.setattr(Wildcards, "match", match)
    environment = {f"ONLY_HERE_{number}": "x" for number in range(50)}

    for _ in range(3):
        redact(environment, ["ONLY_HERE_1*"])

    assert len(matches) == 50


def test_the_installation_may_use_sets(settings: Any) -> None:
    settings.RPM_REDACTED_VARIABLES = ["KEY_[AB]"]

    assert redact({"KEY_A": "x", "KEY_C": "x"}, []) == {"KEY_A": HIDDEN, "KEY_C": "x"}
