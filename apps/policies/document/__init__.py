"""The configuration as one document: pure code, the same for pages, REST, YAML and revisions."""

from apps.policies.document.compare import DocumentChange, compare
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
from apps.policies.document.parse import parse
from apps.policies.document.yaml_text import yaml_data

__all__ = [
    "POOL_COLUMNS",
    "PROFILE_COLUMNS",
    "SCHEMA",
    "Document",
    "DocumentChange",
    "Link",
    "PolicyEntry",
    "PoolEntry",
    "ProfileEntry",
    "QueueEntry",
    "Settings",
    "as_data",
    "as_yaml",
    "compare",
    "parse",
    "yaml_data",
]
