"""The configuration as one document: pure code, the same for pages, REST, YAML and revisions."""

from apps.policies.document.compare import NOUNS, DocumentChange, compare, compare_queues
from apps.policies.document.entries import (
    POOL_COLUMNS,
    PROFILE_COLUMNS,
    SCHEMA,
    Document,
    Link,
    PolicyEntry,
    PoolEntry,
    ProfileEntry,
    QueueEntry,
    Settings,
    as_data,
    as_yaml,
)
from apps.policies.document.file_entries import FileParts, GroupEntry, RuleEntry, RuleName
from apps.policies.document.merge import KINDS, PRUNABLE, Merged, merge
from apps.policies.document.parse import parse
from apps.policies.document.yaml_lines import SourceText, source_text
from apps.policies.document.yaml_text import yaml_data

__all__ = [
    "KINDS",
    "NOUNS",
    "POOL_COLUMNS",
    "PROFILE_COLUMNS",
    "PRUNABLE",
    "SCHEMA",
    "Document",
    "DocumentChange",
    "FileParts",
    "GroupEntry",
    "Link",
    "Merged",
    "PolicyEntry",
    "PoolEntry",
    "ProfileEntry",
    "QueueEntry",
    "RuleEntry",
    "RuleName",
    "Settings",
    "SourceText",
    "as_data",
    "as_yaml",
    "compare",
    "compare_queues",
    "merge",
    "parse",
    "source_text",
    "yaml_data",
]
