"""Configuration documents and files as a JSON schema, for editors and for other programs.

Made from the same structs that read them: `make schema` writes it to
`docs/configuration.schema.json`, and `make check` compares.
"""

import json
import sys
from typing import Any

import msgspec

from apps.policies.document.entries import Document
from apps.policies.document.file_entries import FileParts

ADDRESS = "https://json-schema.org/draft/2020-12/schema"
_MODES = "Who may be preempted: nobody, over-quota work, lower priority, or lower rank"
# One sentence for each field; a test checks that none is missing.
WORDS = {
    "Document": {
        "schema": "The version of this form.",
        "settings": "What holds in all pools.",
        "pools": "In the order of the pages.",
        "profiles": "In the order of the pages.",
        "policies": "Shown in live documents and revisions; not read in a draft.",
    },
    "Settings": {
        "queueing": "strict: all policies are strict, no task starts before an earlier one.",
        "over_quota": "Who gets unreserved capacity first: by priority, or by fair share.",
        "preemption": f"{_MODES}.",
        "consolidation": "Move preemptible tasks within a pool to free capacity for larger ones.",
    },
    "PoolEntry": {
        "key": "Joins draft and live; left out, the name does, or the pool is new.",
        "name": "Unique among pools.",
        "description": "Shown on its card.",
        "capacity": "How much it has; a key that is not listed is not counted.",
        "backfill": "Tasks may start that rank below one that found no capacity here.",
        "preemption": f"{_MODES}; empty: as in the settings.",
        "allowed_images": "Patterns of images that may run here; empty: all.",
        "dedicated_to": "Name of the policy to which alone it belongs.",
        "profiles": "Names, in execution order.",
    },
    "ProfileEntry": {
        "key": "Joins draft and live; left out, the name does, or the profile is new.",
        "name": "Unique among profiles.",
        "description": "Shown on its card.",
        "request": "What one member of a task takes.",
        "replicas": "Members of a task, which start together.",
        "is_dynamic": "A task may bring its own request.",
        "request_min": "The least that such a task asks for.",
        "request_max": "The most that such a task asks for.",
        "device_models": "Models of GPUs that it may get; empty: all.",
        "volumes": "Names of the volumes that tasks may mount.",
        "shm_mb": "Shared memory in MB (2^20 bytes); null: as the runtime has it.",
        "host_network": "The network of the node.",
        "read_only_root": "The image's files cannot be changed.",
        "allow_streams": "Commands, terminals, ports and copies are allowed in running tasks.",
        "extra_permissions": "Names of permissions beyond those of every container.",
        "pools": "In routing order.",
        "queues": "Names, in queuing order.",
    },
    "Link": {
        "pool": "Name of the pool.",
        "name": "Of the link; empty: as the pool.",
    },
    "PolicyEntry": {},
    "QueueEntry": {},
    "FileParts": {
        "groups": "Groups that there are afterwards; their members are not part of a file.",
        "rules": "Access rules, each with exactly the subjects that it names.",
        "queuing_order": "Names of policies whose queues come first in every profile.",
        "remove": "What is removed, by name.",
    },
    "GroupEntry": {},
    "RuleEntry": {
        "kind": "Of the objects that the rule is on.",
        "name": "Of the object; empty: every object of the kind.",
        "level": "What its subjects may do.",
        "users": "User names, of service accounts too.",
        "groups": "Names of groups.",
    },
    "RuleName": {},
    "Removals": {},
}
# In a file an entry may be partial: of a policy it has the name, of a queue the profile.
_NEEDED_IN_FILES = {"PolicyEntry": ["name"], "QueueEntry": ["profile"]}
_AMOUNT: dict[str, Any] = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}
AMOUNTS: dict[str, Any] = {
    "description": "An amount for each key (gpu, cpu, memory_mb, slot or another); a bare "
    "number counts GPUs.",
    "anyOf": [*_AMOUNT["anyOf"], {"type": "object", "additionalProperties": _AMOUNT}],
}


def document_schema() -> dict[str, Any]:
    """The schema as plain data: that of a document with the parts that only files have."""
    (top, _), parts = msgspec.json.schema_components(
        (Document, FileParts), ref_template="#/$defs/{name}"
    )
    for name, part in parts.items():
        part.pop("description", None)
        for field, value in part.get("properties", {}).items():
            # Clients may send a number; a document that is read back holds texts.
            if value.get("additionalProperties") == {"type": "string"}:
                default = value.get("default")
                value.clear()
                value.update({"$ref": "#/$defs/Amounts"} | {"default": default})
            if field in WORDS[name]:
                value["description"] = WORDS[name][field]
    parts["Amounts"] = AMOUNTS
    for name, needed in _NEEDED_IN_FILES.items():
        parts[name]["required"] = needed
    parts["Document"]["properties"] |= parts.pop("FileParts")["properties"]
    return {"$schema": ADDRESS, "title": "RPM configuration", **top, "$defs": parts}


def main() -> None:
    """Print it as `docs/configuration.schema.json` holds it."""
    sys.stdout.write(json.dumps(document_schema(), indent=2) + "\n")


if __name__ == "__main__":
    main()
