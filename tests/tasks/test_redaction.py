"""Which values nobody reads again."""

from typing import Any

import pytest

from apps.core.keyring import HIDDEN
from apps.tasks.redaction import redacted, unhidden


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
    assert redacted({name: "value"}, []) == {name: HIDDEN}


def test_other_values_are_shown() -> None:
    assert redacted({"PATH": "/bin", "AWS_ACCESS_KEY_ID": "x"}, []) == {
        "PATH": "/bin",
        "AWS_ACCESS_KEY_ID": "x",
    }


def test_an_installation_has_its_own_list(settings: Any) -> None:
    settings.RPM_REDACTED_VARIABLES = ["wandb_*"]

    assert redacted({"WANDB_API_KEY": "x", "MY_TOKEN": "y"}, []) == {
        "WANDB_API_KEY": HIDDEN,
        "MY_TOKEN": "y",
    }


def test_what_was_read_hidden_and_comes_back_stays_as_it_was() -> None:
    assert unhidden({"A": HIDDEN, "B": "new", "C": HIDDEN}, {"A": "1", "B": "2"}) == {
        "A": "1",
        "B": "new",
        "C": HIDDEN,
    }


def test_an_owner_can_hide_more() -> None:
    environment = {"WANDB_KEY": "a", "MY_TOKEN": "b", "PATH": "/bin"}

    assert redacted(environment, ["wandb_*"]) == {
        "WANDB_KEY": HIDDEN,
        "MY_TOKEN": HIDDEN,
        "PATH": "/bin",
    }
