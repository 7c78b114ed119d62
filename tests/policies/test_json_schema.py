"""The schema of the configuration document says what reading one accepts."""

import re
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import pytest
import yaml

from apps.core.errors import BadInput
from apps.policies.document import as_data, parse
from apps.policies.document.json_schema import WORDS, document_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = jsonschema.Draft202012Validator(document_schema())


def examples() -> list[dict[str, object]]:
    """Those of the documentation: a document, and a configuration file."""
    text = (ROOT / "docs" / "configuring.md").read_text()
    found = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [yaml.safe_load(one) for one in found[:2]]


def test_the_examples_of_the_documentation_are_read_and_fit_the_schema() -> None:
    sent, file = examples()

    SCHEMA.validate(sent)
    SCHEMA.validate(as_data(parse(sent)))
    assert len(parse(sent).pools) == 2
    assert {"groups", "rules", "queuing_order", "remove"} < set(file)
    SCHEMA.validate(file)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"pool": []}, id="a misspelt field"),
        pytest.param({"rules": [{"kind": "task", "level": "read"}]}, id="a rule on no kind"),
        pytest.param({"settings": {"preemption": "always"}}, id="a choice that is none"),
        pytest.param({"pools": [{"capacity": {"gpu": 4}}]}, id="a pool without a name"),
        pytest.param({"pools": [{"name": "A", "capacity": [4]}]}, id="amounts in a list"),
        pytest.param({"profiles": [{"name": "A", "replicas": 0}]}, id="no members"),
    ],
)
def test_what_reading_refuses_does_not_fit_the_schema(change: dict[str, object]) -> None:
    assert not SCHEMA.is_valid(change)
    with pytest.raises(BadInput):
        parse(change)


def test_every_field_that_can_be_sent_is_described() -> None:
    parts = document_schema()["$defs"]
    words = {**WORDS, "Document": WORDS["Document"] | WORDS["FileParts"], "FileParts": {}}

    for name, sentences in words.items():
        if sentences:
            assert set(sentences) == set(parts[name]["properties"]), name
