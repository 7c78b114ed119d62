"""Configuration files: what changed since somebody compared one, and how much one may be."""

import tracemalloc

import pytest
from rest_framework.test import APIClient

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.policies.document import source_text, yaml_text
from tests.configuration.api.configuration_files import send, sentences
from tests.people import Example

pytestmark = pytest.mark.django_db
NO_RULES = "rules: []\n"


def grant(actor: User, example: Example, user: User) -> None:
    target = Target(RuleKind.POLICY, str(example.dev.pk), example.dev.name)
    subjects = RuleSubjects((user,), ())
    rule_grant(actor=actor, target=target, level=Level.READ, subjects=subjects)


def test_a_rule_that_was_granted_since_the_diff_is_not_pruned(
    admin: APIClient, example: Example, root: User, bob: User, charlie: User
) -> None:
    grant(root, example, bob)
    seen = send(admin, "diff", NO_RULES, prune="rules")
    assert sentences(seen) == ["rule read on policy Dev removed"]
    version = seen.json()["version"]
    grant(root, example, charlie)

    refused = send(admin, "apply", NO_RULES, prune="rules", version=version)

    assert refused.status_code == 412, refused.json()
    assert refused.json()["fields"]["version"].startswith(f"is {version}, ")
    again = send(admin, "diff", NO_RULES, prune="rules").json()["version"]
    applied = send(admin, "apply", NO_RULES, prune="rules", version=again)
    assert sentences(applied) == ["rule read on policy Dev removed"]


def test_the_version_is_of_objects_groups_and_rules(
    admin: APIClient, example: Example, root: User, bob: User
) -> None:
    def version() -> str:
        found: str = send(admin, "diff", NO_RULES).json()["version"]
        return found

    seen = {version()}
    assert version() in seen
    for text in (
        "policies: [{name: Dev, weight: 7}]",
        "groups: [{name: vision}]",
        "groups: [{name: vision, description: Images}]",
        "rules: [{kind: queue, name: dev-4xgpu, level: read, users: [bob]}]",
    ):
        applied = send(admin, "apply", text)
        assert applied.json()["is_changed"], applied.json()
        # What is applied says the version after it.
        assert applied.json()["version"] == version() not in seen
        seen.add(version())
    assert send(admin, "apply", NO_RULES, dry_run="true").json()["version"] in seen


def test_a_text_of_more_values_is_refused_where_they_begin(
    admin: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_text, "VALUES", 10)

    refused = send(admin, "diff", f"a: [{', '.join('1' * 20)}]\n")

    assert refused.status_code == 400
    assert "holds more than 10 values. Line 1, column" in refused.json()["detail"]


def test_many_values_below_long_keys_cost_little_memory() -> None:
    """Paths of all of them would have 10,000 characters each."""
    key = "k" * 1000
    keys = "".join(f"{' ' * level}{key}:\n" for level in range(10))
    text = f"{keys}{' ' * 10}[{','.join('1' * 10_000)}]\n"

    tracemalloc.start()
    source = source_text(text)
    (line,) = source.lines_of([f"{'.'.join([key] * 10)}[9999]"]).values()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert line == 11
    assert most < 60_000_000


def test_a_line_is_that_of_the_longest_key_that_a_path_begins_with() -> None:
    text = "a:\n  b: 1\na.b:\n  - c\n  -\n    d[0]: 2\n"

    found = source_text(text).lines_of(["a.b", "a.c", "a.b[1].d[0]", "a.b[7]", "x", ""])

    assert list(found.values()) == [3, 1, 6, 3, None, None]
