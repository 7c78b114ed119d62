"""Parses a request body into a document; every error names the path of its field."""

import re
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from apps.core.errors import BadInput
from apps.core.names import has_invisible
from apps.core.suggestions import did_you_mean
from apps.core.units import check_request, milli, quantities_text
from apps.policies.document.entries import (
    Document,
    Link,
    PolicyEntry,
    PoolEntry,
    ProfileEntry,
    QueueEntry,
    Settings,
)
from apps.policies.document.file_entries import GroupEntry, Removals, RuleEntry, RuleName
from apps.policies.extra_permissions import permission_problem
from apps.policies.images import is_pattern

Struct = TypeVar("Struct", bound=msgspec.Struct)
_AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_FIELDS: dict[str, Sequence[str]] = {
    "": Document.__struct_fields__,
    "settings": Settings.__struct_fields__,
    "pools": PoolEntry.__struct_fields__,
    "profiles": ProfileEntry.__struct_fields__,
    "profiles.pools": Link.__struct_fields__,
    "policies": PolicyEntry.__struct_fields__,
    "policies.queues": QueueEntry.__struct_fields__,
    "groups": GroupEntry.__struct_fields__,
    "rules": RuleEntry.__struct_fields__,
    "remove": Removals.__struct_fields__,
    "remove.rules": RuleName.__struct_fields__,
}
_CHOICES = {
    "settings.queueing": "best_effort or strict",
    "settings.over_quota": "priority or fair_share",
    "settings.preemption": "none, reclaim, priority or rank",
    "pools.preemption": "empty, none, reclaim, priority or rank",
    "schema": "1",
    "rules.kind": "policy, queue, pool or volume",
    "rules.level": "read, modify, manage or exceed",
}


def parse(raw: object) -> Document:
    """The checked document: amounts as texts, names without spaces around, orders complete.

    Entries that an order leaves out come last in it.

    Args:
        raw: plain data as JSON or YAML gives it; it is not changed.

    Raises:
        BadInput: `fields` names every problem by its path, e.g. `pools[1].capacity.gpu`.
    """
    if not isinstance(raw, Mapping):
        raise BadInput("The document must be an object.", fields={"body": "must be an object"})
    problems: dict[str, str] = {}
    texts = _with_amounts(raw, problems)
    problems_refuse(problems)
    document = _strip_names(convert(texts, Document))
    _check_texts(document, problems)
    _check_keys("pools", document.pools, problems)
    _check_keys("profiles", document.profiles, problems)
    _check_names("pools", document.pools, problems)
    _check_names("profiles", document.profiles, problems)
    _check_requests(document, problems)
    _check_containers(document, problems)
    _check_links(document, problems)
    problems_refuse(problems)
    return _complete(document)


def convert(raw: object, wanted: type[Struct]) -> Struct:
    """Plain data as entries.

    Raises:
        BadInput: naming the path of the first problem.
    """
    try:
        return msgspec.convert(raw, wanted)
    except msgspec.ValidationError as error:
        path, problem = _explain(str(error))
        raise BadInput(f"{path} {problem}.", fields={path: problem}) from error


def problems_refuse(problems: Mapping[str, str]) -> None:
    """Refuse what has problems, which are by path."""
    if problems:
        raise BadInput("; ".join(f"{k} {v}" for k, v in problems.items()) + ".", fields=problems)


# --- amounts ---------------------------------------------------------------------------------


def _with_amounts(raw: Mapping[Any, Any], problems: dict[str, str]) -> dict[Any, Any]:
    """A copy whose amounts are checked texts; a profile may only ask for what some pool lists."""
    texts = dict(raw)
    pools, keys = [], set[str]()
    for index, pool in enumerate(_list(raw, "pools")):
        entry = _amounts(pool, f"pools[{index}]", ["capacity"], None, problems)
        pools.append(entry)
        if isinstance(entry, dict) and isinstance(entry.get("capacity"), dict):
            keys |= set(map(str, entry["capacity"]))
    fields = ["request", "request_min", "request_max"]
    profiles = [
        _amounts(profile, f"profiles[{index}]", fields, keys, problems)
        for index, profile in enumerate(_list(raw, "profiles"))
    ]
    if isinstance(raw.get("pools"), list | tuple):
        texts["pools"] = pools
    if isinstance(raw.get("profiles"), list | tuple):
        texts["profiles"] = profiles
    return texts


def _list(raw: Mapping[Any, Any], name: str) -> Sequence[Any]:
    value = raw.get(name)
    return value if isinstance(value, list | tuple) else ()


def _amounts(
    entry: object,
    path: str,
    fields: Iterable[str],
    keys: Iterable[str] | None,
    problems: dict[str, str],
) -> object:
    if not isinstance(entry, Mapping):
        return entry
    copy = dict(entry)
    for field in fields:
        if field in copy:
            try:
                copy[field] = quantities_text(copy[field], field=f"{path}.{field}", keys=keys)
            except BadInput as error:
                problems.update(error.fields)
    return copy


# --- what msgspec found ----------------------------------------------------------------------


def _explain(message: str) -> tuple[str, str]:
    """Path and problem of one error of msgspec, as messages of this project."""
    found = _AT.search(message)
    path = found["path"] if found else ""
    problem = _AT.sub("", message)
    unknown = _UNKNOWN.fullmatch(problem)
    plain = re.sub(r"\[[^]]*\]", "", path)
    if unknown:
        name = unknown["field"]
        hint = did_you_mean(name, _FIELDS.get(plain, ()))
        return (f"{path}.{name}" if path else name), f"is not a known field{hint}"
    if plain in _CHOICES:
        return path, f"must be {_CHOICES[plain]}"
    return path or "body", f"is wrong: {problem[0].lower()}{problem[1:]}".replace("`", "'")


# --- texts, keys, names ----------------------------------------------------------------------


def _strip_names(document: Document) -> Document:
    """Names without spaces around, and links without a name called as their pool."""
    pools = tuple(
        msgspec.structs.replace(
            pool,
            name=pool.name.strip(),
            dedicated_to=(pool.dedicated_to or "").strip() or None,
            profiles=tuple(name.strip() for name in pool.profiles),
        )
        for pool in document.pools
    )
    profiles = tuple(
        msgspec.structs.replace(
            profile,
            name=profile.name.strip(),
            pools=tuple(
                Link(pool=link.pool.strip(), name=link.name.strip() or link.pool.strip())
                for link in profile.pools
            ),
        )
        for profile in document.profiles
    )
    return msgspec.structs.replace(document, pools=pools, profiles=profiles)


def _check_texts(document: Document, problems: dict[str, str]) -> None:
    """Refuse texts that a database column or a page cannot hold: NUL, lone surrogates."""

    def check(path: str, value: object) -> None:
        if isinstance(value, str):
            if any(unicodedata.category(sign) in {"Cc", "Cs"} for sign in value if sign not in _WS):
                problems[path] = "holds control characters or half of a character"
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                check(f"{path}.{key}" if path else str(key), inner)
        elif isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                check(f"{path}[{index}]", inner)

    check("", msgspec.to_builtins(document))


_WS = frozenset("\n\r\t")


def _check_keys(
    kind: str, entries: Sequence[PoolEntry | ProfileEntry], problems: dict[str, str]
) -> None:
    seen: dict[uuid.UUID, int] = {}
    for index, entry in enumerate(entries):
        if not entry.key:
            continue
        try:
            key = uuid.UUID(entry.key)
        except ValueError:
            problems[f"{kind}[{index}].key"] = "is not a UUID; leave it out for something new"
            continue
        if key in seen:
            problems[f"{kind}[{index}].key"] = f"is the key of {kind}[{seen[key]}] already"
        seen[key] = index


def _check_names(
    kind: str, entries: Sequence[PoolEntry | ProfileEntry], problems: dict[str, str]
) -> None:
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        path, name = f"{kind}[{index}].name", entry.name.lower()
        if not name:
            problems[path] = "must not be empty"
        elif "\n" in name or "\t" in name or "\r" in name:
            problems[path] = "must be one line"
        elif has_invisible(name):
            # A problem of the text itself says more, and is there already.
            problems.setdefault(path, "holds a character that cannot be seen: type it again")
        elif name in seen:
            # At both: the editor may show only one of them, and either may have been changed.
            problems[path] = f"{entry.name!r} is the name of two {kind}: choose another"
            problems.setdefault(f"{kind}[{seen[name]}].name", problems[path])
        seen.setdefault(name, index)


def _check_requests(document: Document, problems: dict[str, str]) -> None:
    for index, profile in enumerate(document.profiles):
        path = f"profiles[{index}]"
        for field in ("request", "request_min", "request_max"):
            try:
                check_request(getattr(profile, field), field=f"{path}.{field}")
            except BadInput as error:
                problems.update(error.fields)
        if profile.is_dynamic:
            _check_range(profile, path, problems)
        elif profile.request_min or profile.request_max:
            problems[f"{path}.is_dynamic"] = "must be true where request_min or request_max is set"


def _check_range(profile: ProfileEntry, path: str, problems: dict[str, str]) -> None:
    """The default request of a dynamic profile lies within what tasks may ask for."""
    for key, low in profile.request_min.items():
        if milli(low) > milli(profile.request.get(key, "0")):
            problems[f"{path}.request_min.{key}"] = "is above the request"
    for key, high in profile.request_max.items():
        if milli(high) < milli(profile.request.get(key, "0")):
            problems[f"{path}.request_max.{key}"] = "is below the request"


def _check_containers(document: Document, problems: dict[str, str]) -> None:
    """Which images may run in a pool, and what a profile allows its containers."""
    for p, pool in enumerate(document.pools):
        for i, pattern in enumerate(pool.allowed_images):
            if not is_pattern(pattern):
                problems[f"pools[{p}].allowed_images[{i}]"] = (
                    "must be a name such as registry.example.org/team/*, "
                    "without a star before the first slash"
                )
    for p, profile in enumerate(document.profiles):
        for i, permission in enumerate(profile.extra_permissions):
            problem = permission_problem(permission)
            if problem:
                problems[f"profiles[{p}].extra_permissions[{i}]"] = problem


# --- links and orders ------------------------------------------------------------------------


def _check_links(document: Document, problems: dict[str, str]) -> None:
    pools = {pool.name.lower() for pool in document.pools}
    linked: set[tuple[str, str]] = set()
    for p, profile in enumerate(document.profiles):
        seen: set[str] = set()
        for i, link in enumerate(profile.pools):
            path, name = f"profiles[{p}].pools[{i}].pool", link.pool.lower()
            if name not in pools:
                problems[path] = _unknown("pool", link.pool, [q.name for q in document.pools])
            elif name in seen:
                problems[path] = f"{link.pool!r} is linked twice"
            seen.add(name)
            linked.add((name, profile.name.lower()))
        _check_once(f"profiles[{p}].queues", profile.queues, problems)
    for p, pool in enumerate(document.pools):
        _check_once(f"pools[{p}].profiles", pool.profiles, problems)
        for i, name in enumerate(pool.profiles):
            if (pool.name.lower(), name.lower()) not in linked:
                problems[f"pools[{p}].profiles[{i}]"] = (
                    f"{name!r} is no profile that links this pool: add the pool to the profile"
                )


def _check_once(path: str, names: Sequence[str], problems: dict[str, str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name.lower() in seen:
            problems[f"{path}[{index}]"] = f"{name!r} is listed twice"
        seen.add(name.lower())


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    return f"there is no {kind} {name!r}{did_you_mean(name, known)}"


def _complete(document: Document) -> Document:
    """Names as their entries spell them, and every linked profile in the order of its pool."""
    pools = _spelling_of(pool.name for pool in document.pools)
    profile_names = _spelling_of(profile.name for profile in document.profiles)
    profiles = tuple(
        msgspec.structs.replace(
            profile,
            pools=tuple(Link(pool=pools(link.pool), name=link.name) for link in profile.pools),
        )
        for profile in document.profiles
    )
    linking: dict[str, list[str]] = {pool.name: [] for pool in document.pools}
    for profile in profiles:
        for link in profile.pools:
            linking[link.pool].append(profile.name)

    def ordered(pool: PoolEntry) -> PoolEntry:
        first = [profile_names(name) for name in pool.profiles]
        rest = [name for name in linking[pool.name] if name not in first]
        return msgspec.structs.replace(pool, profiles=(*first, *rest))

    return msgspec.structs.replace(
        document, pools=tuple(map(ordered, document.pools)), profiles=profiles
    )


def _spelling_of(names: Iterable[str]) -> Callable[[str], str]:
    known = {name.lower(): name for name in names}
    return lambda name: known.get(name.lower(), name)
