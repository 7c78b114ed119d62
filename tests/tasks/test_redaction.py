"""Which values nobody reads again."""

import pytest

from apps.tasks.redaction import HIDDEN, redacted


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
    assert redacted({name: "value"}) == {name: HIDDEN}


def test_other_values_are_shown() -> None:
    assert redacted({"PATH": "/bin", "AWS_ACCESS_KEY_ID": "x"}) == {
        "PATH": "/bin",
        "AWS_ACCESS_KEY_ID": "x",
    }
