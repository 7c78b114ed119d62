"""The configuration as one document: pure code, the same for pages, REST, YAML and revisions."""

from apps.policies.document.compare import Change, compare
from apps.policies.document.parse import parse, yaml_data
from apps.policies.document.shapes import (
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

__all__ = [
    "POOL_COLUMNS",
    "PROFILE_COLUMNS",
    "SCHEMA",
    "Change",
    "Document",
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
