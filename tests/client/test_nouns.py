"""Objects of administrators by the table of nouns, against a real server and its schema."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rpm_client import RefusedError
from rpm_client.cli.nouns import NOUNS
from tests.client.conftest import ctl
from tests.people import Example

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.django_db(transaction=True)


def test_the_table_is_what_rest_has() -> None:
    found = yaml.load((ROOT / "docs" / "openapi.yaml").read_text(), yaml.CSafeLoader)["paths"]

    for word, noun in NOUNS.items():
        one: Any = next(
            (
                path
                for path in found
                if path.startswith(f"/api/v1/{noun.path}/{{") and path.count("/") == 5
            ),
            "",
        )
        has = {
            "create": "post" in found[f"/api/v1/{noun.path}/"],
            "set": "patch" in found[one],
            "delete": "delete" in found[one],
        }
        want = {"create": noun.is_made, "set": noun.is_changed, "delete": noun.is_deleted}
        assert has == want, word
        assert [verb for verb in noun.verbs if f"{one}{verb}/" not in found] == [], word


def test_every_noun_is_listed_with_its_columns(
    administration: dict[str, str], example: Example
) -> None:
    for word, noun in NOUNS.items():
        listed = ctl(administration, word, "list")
        rows = json.loads(ctl(administration, word, "list", "--json").stdout)

        assert listed.exit_code == 0, (word, listed.output)
        assert len(listed.stdout.splitlines()) == len(rows), word
        assert [one for row in rows for one in noun.columns if one not in row] == [], word


def test_a_group_is_made_changed_shown_and_deleted(administration: dict[str, str]) -> None:
    made = ctl(administration, "group", "create", "name=Robots", "description=Of the hall")
    changed = ctl(administration, "group", "set", "robots", "description=Of both halls")
    shown = json.loads(ctl(administration, "group", "show", made.stdout.strip()).stdout)
    asked = ctl(administration, "group", "delete", "Robots", given="n\n")
    deleted = ctl(administration, "group", "delete", "Robots", "--yes")
    gone = ctl(administration, "group", "show", "Robots")

    assert made.exit_code == 0, made.output
    assert changed.stdout == "robots is changed: description.\n", changed.output
    assert (shown["name"], shown["description"]) == ("Robots", "Of both halls")
    assert (asked.exit_code, deleted.stdout) == (1, "Robots is deleted.\n")
    assert gone.exit_code == 2


def test_a_policy_is_changed_by_fields_in_fields(
    administration: dict[str, str], access: dict[str, str], example: Example
) -> None:
    words = ("policy", "set", "Dev", "--json")
    ctl(administration, *words, "limit.cpu=64")
    set_ = ctl(administration, *words, "limit.gpu=9", "weight=3")
    unknown = ctl(administration, "policy", "set", "Dev", "wait=3")
    refused = ctl(access, "policy", "set", "Dev", "weight=2")
    paused = ctl(administration, "queue", "pause", example.dev_queue.name, "--reason", "a new fan")

    assert set_.exit_code == 0, set_.output
    policy = json.loads(set_.stdout)
    assert (policy["limit"], policy["weight"]) == ({"cpu": "64", "gpu": "9"}, 3)
    assert isinstance(unknown.exception, RefusedError)
    assert isinstance(refused.exception, RefusedError)
    assert paused.exit_code == 0, paused.output
    example.dev_queue.refresh_from_db()
    assert (example.dev_queue.is_paused, example.dev_queue.pause_reason) == (True, "a new fan")


def test_fields_that_are_none_are_refused_before_anything_is_sent(
    administration: dict[str, str], example: Example
) -> None:
    words = [("name",), (), ("limit=[a",), ("limit=3", "limit.gpu=4")]

    done = [ctl(administration, "policy", "set", "Dev", *each) for each in words]

    assert [one.exit_code for one in done] == [2, 2, 2, 2]
