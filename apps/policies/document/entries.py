"""The entries of the configuration document.

The order of every list counts: `pools` and `profiles` are in the order of the pages,
`PoolEntry.profiles` in execution order, `ProfileEntry.pools` in routing order, and
`ProfileEntry.queues` in queuing order. Amounts are the texts that people typed.
Unknown fields are refused, so that a typing error is never a silent default.
"""

from typing import Annotated, Any, Literal

import msgspec
import yaml

SCHEMA: Literal[1] = 1
_LARGEST = 2**31 - 1

Name = Annotated[str, msgspec.Meta(max_length=120)]
Text = Annotated[str, msgspec.Meta(max_length=10_000)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class Settings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    queueing: Literal["best_effort", "strict"] = "best_effort"
    over_quota: Literal["priority", "fair_share"] = "priority"
    preemption: Literal["none", "reclaim", "priority", "rank"] = "reclaim"
    consolidation: bool = False


class PoolEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`key` joins draft and live; where it is left out, the name does, or the pool is new.

    `preemption` "" is that of the settings; `dedicated_to` is the name of a policy; `profiles` are
    names, in execution order.
    """

    key: str = ""
    name: Name
    description: Text = ""
    capacity: dict[str, str] = {}
    backfill: bool = True
    preemption: Literal["", "none", "reclaim", "priority", "rank"] = ""
    allowed_images: tuple[Annotated[str, msgspec.Meta(max_length=500)], ...] = ()
    dedicated_to: Name | None = None
    profiles: tuple[str, ...] = ()


class Link(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A pool of a profile, and the name of the link between the two."""

    pool: Name
    name: Name = ""


class ProfileEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`pools` in routing order; `queues` are names, in queuing order."""

    key: str = ""
    name: Name
    description: Text = ""
    request: dict[str, str] = {}
    replicas: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 1
    is_dynamic: bool = False
    request_min: dict[str, str] = {}
    request_max: dict[str, str] = {}
    device_models: tuple[Name, ...] = ()
    volumes: tuple[Name, ...] = ()
    shm_mb: Whole | None = None
    host_network: bool = False
    read_only_root: bool = False
    allow_streams: bool = True
    extra_permissions: tuple[Name, ...] = ()
    pools: tuple[Link, ...] = ()
    queues: tuple[str, ...] = ()


# Fields that rows and entries share under the same names: a new column of pools or profiles is
# one more field of its entry.
POOL_COLUMNS = tuple(
    name for name in PoolEntry.__struct_fields__ if name not in {"key", "dedicated_to", "profiles"}
)
PROFILE_COLUMNS = tuple(
    name for name in ProfileEntry.__struct_fields__ if name not in {"key", "pools", "queues"}
)


class QueueEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    name: str
    profile: str
    allow_over_quota: bool = True
    allow_streams: bool = True
    on_preemption: str = "requeue"
    on_node_loss: str = "wait"
    min_runtime_s: int = 0
    max_preemptions: int | None = None
    grace_s: int = 30
    max_priority: int = 0
    max_waiting: int | None = None
    idle_warn_minutes: int | None = None
    idle_stop_minutes: int | None = None


class PolicyEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Policies apply at once: live documents and revisions have them, drafts do not."""

    id: int
    name: str
    description: str = ""
    group: str
    parent: str | None = None
    reserved: dict[str, str] = {}
    limit: dict[str, str] = {}
    weight: int = 1
    is_strict: bool = False
    user_limit: dict[str, str] = {}
    logs_open_to_group: bool = False
    budget: str | None = None
    budget_stops: bool = False
    queues: tuple[QueueEntry, ...] = ()


class Document(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The whole configuration; `policies` is None in a draft."""

    schema: Literal[1] = SCHEMA
    settings: Settings = Settings()
    pools: tuple[PoolEntry, ...] = ()
    profiles: tuple[ProfileEntry, ...] = ()
    policies: tuple[PolicyEntry, ...] | None = None


def as_data(document: Document) -> dict[str, Any]:
    """The document as plain JSON data; a draft has no `policies`."""
    # Through JSON, because msgspec keeps tuples, which YAML would tag.
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    if document.policies is None:
        del data["policies"]
    return data


def as_yaml(document: Document) -> str:
    """The same data as YAML, in the order of the fields."""
    text: str = yaml.safe_dump(as_data(document), sort_keys=False, allow_unicode=True)
    return text
