"""Puts a partial configuration file onto a whole document.

What the file does not name stays as it is: kinds, entries, and fields of an entry. A field that it
names replaces the old value as a whole, lists and amounts included. Entries are joined by `key`
where the document has that key, else by name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.core.errors import BadInput
from apps.core.suggestions import did_you_mean
from apps.core.units import quantities_text
from apps.policies.document.entries import Document, as_data
from apps.policies.document.file_entries import FileParts, Removals
from apps.policies.document.parse import convert, parse, problems_refuse

KINDS = ("pools", "profiles", "policies")
# What `prune` may name: of these kinds, what the file does not name is removed.
PRUNABLE = (*KINDS, "queues", "rules")
_PARTS = FileParts.__struct_fields__
_PLACE = re.compile(r"^(?:pools|profiles|policies)\[\d+\](?:\.queues\[\d+\])?")
Row = dict[str, Any]


@dataclass(slots=True)
class Merged:
    """The document as the file wants it.

    Args:
        places: from the path of an entry in the document to the one in the file.
        named: per kind the names (lower case) that the file has; of queues, the pairs of policy and
            profile.
    """

    document: Document
    parts: FileParts
    removed: Removals
    places: Mapping[str, str]
    named: Mapping[str, frozenset[Any]]

    def place(self, path: str) -> str:
        """The path in the file; of an entry that it does not hold, with the name of that."""
        return _translate(path, self.places)


def merge(live: Document, raw: object, *, prune: Iterable[str] = ()) -> Merged:
    """Check a file and put it onto the live document.

    Raises:
        BadInput: `fields` has the paths of the file.
    """
    if not isinstance(raw, Mapping):
        raise BadInput("The file must be an object.", fields={"body": "must be an object"})
    parts = convert({name: raw[name] for name in _PARTS if name in raw}, FileParts)
    merger = _Merger(live, raw, parts.remove, frozenset(prune))
    data = merger.merged()
    try:
        document = parse(data)
    except BadInput as error:
        fields = {_translate(path, merger.places): text for path, text in error.fields.items()}
        detail = "; ".join(f"{path} {text}" for path, text in fields.items())
        raise BadInput(f"{detail}.", fields=fields) from error
    named = {kind: frozenset(names) for kind, names in merger.named.items()}
    return Merged(document, parts, merger.removals(), merger.places, named)


def _translate(path: str, places: Mapping[str, str]) -> str:
    found = _PLACE.match(path)
    if found is None:
        return path
    for prefix in (found[0], found[0].partition(".")[0]):
        if prefix in places:
            return places[prefix] + path[len(prefix) :]
    return path


@dataclass(slots=True)
class _Merger:
    live: Document
    raw: Mapping[Any, Any]
    remove: Removals
    prune: frozenset[str]
    places: dict[str, str] = field(default_factory=dict)
    named: dict[str, set[Any]] = field(default_factory=lambda: {k: set() for k in PRUNABLE})
    _renamed: dict[str, dict[str, str]] = field(default_factory=dict)
    _removed: dict[str, list[str]] = field(default_factory=lambda: {k: [] for k in PRUNABLE})
    _from_file: set[tuple[str, str, str]] = field(default_factory=set)

    def merged(self) -> Row:
        """The data of the whole document."""
        self._check_kinds()
        data = as_data(self.live)
        # Fields of the document that it does not have are refused when it is read.
        data |= {k: v for k, v in self.raw.items() if k not in {*_PARTS, *KINDS, "settings"}}
        if "settings" in self.raw:
            data["settings"] = _over(data["settings"], self.raw["settings"], "settings")
        for kind in KINDS:
            data[kind] = self._entries(kind, data[kind])
        self._follow_names(data)
        keys = {key for pool in data["pools"] for key in _mapping(pool.get("capacity"))}
        self._amounts(data["policies"], keys)
        return data

    def removals(self) -> Removals:
        """What the file removes, and what it leaves out of the pruned kinds."""
        names = {k: tuple(self._removed[k]) for k in (*KINDS, "queues")}
        return Removals(**names, rules=self.remove.rules)

    def _check_kinds(self) -> None:
        known = (*Document.__struct_fields__, *_PARTS)
        for name in self.raw:
            if name not in known:
                raise _bad(str(name), f"is not a known field{did_you_mean(str(name), known)}")
        for kind in sorted(self.prune):
            if kind not in PRUNABLE:
                raise _bad("prune", f"{kind!r} is none of {', '.join(PRUNABLE)}")
            if ("policies" if kind == "queues" else kind) not in self.raw:
                raise _bad("prune", f"names {kind}, which the file does not have")

    def _entries(self, kind: str, rows: list[Row]) -> list[Row]:
        """Rows of one kind: those of the file change places with one another, new ones are last."""
        given = self._given(kind)
        wanted = {name.lower() for name in getattr(self.remove, kind)}
        known = {row["name"].lower(): row for row in rows}
        by_key = {row["key"]: row for row in rows if row.get("key")}
        joined: list[tuple[int, Row, Row | None]] = []
        for index, entry in enumerate(given):
            path = f"{kind}[{index}]"
            row = by_key.get(entry.get("key")) or known.get(entry["name"].strip().lower())
            if any(row is other for _, _, other in joined if row is not None):
                raise _bad(f"{path}.name", f"{entry['name']!r} is in the file twice")
            if entry["name"].strip().lower() in wanted:
                raise _bad(f"{path}.name", f"{entry['name']!r} is to be removed, too")
            joined.append((index, self._joined(kind, path, entry, row), row))
        return self._ordered(kind, rows, joined, wanted)

    def _given(self, kind: str) -> list[Row]:
        given = self.raw.get(kind)
        if given is None:
            return []
        if not isinstance(given, list | tuple):
            raise _bad(kind, "must be a list")
        for index, entry in enumerate(given):
            if not isinstance(entry, Mapping):
                raise _bad(f"{kind}[{index}]", "must be an object")
            if not isinstance(entry.get("name"), str) or not entry["name"].strip():
                raise _bad(f"{kind}[{index}].name", "must be a name")
            if not isinstance(entry.get("key", ""), str):
                raise _bad(f"{kind}[{index}].key", "must be text")
        return [dict(entry) for entry in given]

    def _joined(self, kind: str, path: str, entry: Row, row: Row | None) -> Row:
        self.named[kind].add(entry["name"].strip().lower())
        if kind == "policies":
            self._check_id(path, entry, row)
        merged = {**(row or {}), **entry}
        if row is not None:
            self._renamed.setdefault(kind, {})[row["name"].lower()] = entry["name"].strip()
            if "key" in row:
                merged["key"] = row["key"]
        if kind == "policies":
            merged["id"] = row["id"] if row else 0
            merged["queues"] = [*(row or {}).get("queues", ()), *self._given_queues(path, entry)]
        self._from_file |= {(kind, merged["name"].strip().lower(), name) for name in entry}
        return merged

    @staticmethod
    def _check_id(path: str, entry: Row, row: Row | None) -> None:
        """An id is that of the policy of this name: files of another installation have none."""
        if entry.get("id") in (None, 0) or (row is not None and entry["id"] == row["id"]):
            return
        raise _bad(f"{path}.id", "is not that of the policy of this name here: leave it out")

    def _given_queues(self, path: str, entry: Row) -> list[Row]:
        """The queues of the file, marked with their place until they are joined."""
        given = entry.get("queues", ())
        if not isinstance(given, list | tuple):
            raise _bad(f"{path}.queues", "must be a list")
        found = []
        for index, queue in enumerate(given):
            if not isinstance(queue, Mapping) or not isinstance(queue.get("profile"), str):
                raise _bad(f"{path}.queues[{index}].profile", "must be the name of a profile")
            found.append({**queue, "": f"{path}.queues[{index}]"})
        return found

    def _ordered(
        self,
        kind: str,
        rows: list[Row],
        joined: list[tuple[int, Row, Row | None]],
        wanted: set[str],
    ) -> list[Row]:
        changed = [(index, merged) for index, merged, row in joined if row is not None]
        ids = {id(row) for _, _, row in joined if row is not None}
        turns = iter(changed)
        found: list[tuple[int | None, Row]] = []
        for row in rows:
            if id(row) in ids:
                found.append(next(turns))
            elif row["name"].lower() in wanted or kind in self.prune:
                self._removed[kind].append(row["name"])
            else:
                found.append((None, row))
        found += [(index, merged) for index, merged, row in joined if row is None]
        for place, (index, row) in enumerate(found):
            name = f"{kind}[{index}]" if index is not None else f"{kind}[{row['name']}]"
            self.places[f"{kind}[{place}]"] = name
        return [row for _, row in found]

    # --- names in other entries ---------------------------------------------------------------

    def _follow_names(self, data: Row) -> None:
        """Names that stand in entries of the live document, after renames and removals."""
        gone = {kind: {name.lower() for name in self._removed[kind]} for kind in KINDS}
        closed = {name.strip().lower() for name in self.remove.queues}
        for profile in data["profiles"]:
            if self._is_live("profiles", profile, "pools"):
                profile["pools"] = [
                    {**link, "pool": self._now("pools", link["pool"])}
                    for link in profile.get("pools", ())
                    if link["pool"].lower() not in gone["pools"]
                ]
            if self._is_live("profiles", profile, "queues"):
                queues = profile.get("queues", ())
                profile["queues"] = [name for name in queues if name.lower() not in closed]
        linked = {
            (str(link.get("pool")).strip().lower(), profile["name"].strip().lower())
            for profile in data["profiles"]
            for link in _list(profile.get("pools"))
            if isinstance(link, Mapping)
        }
        for pool in data["pools"]:
            if self._is_live("pools", pool, "profiles"):
                names = [self._now("profiles", name) for name in pool.get("profiles", ())]
                here = pool["name"].strip().lower()
                pool["profiles"] = [name for name in names if (here, name.lower()) in linked]
        for index, policy in enumerate(data["policies"]):
            policy["queues"] = self._queues(index, policy, gone["profiles"], closed)

    def _is_live(self, kind: str, row: Row, name: str) -> bool:
        return (kind, row["name"].strip().lower(), name) not in self._from_file

    def _now(self, kind: str, name: str) -> str:
        return self._renamed.get(kind, {}).get(name.lower(), name)

    def _queues(self, at: int, policy: Row, gone: set[str], closed: set[str]) -> list[Row]:
        """Queues of a policy, joined by their profile."""
        rows: dict[str, Row] = {}
        for queue in policy["queues"]:
            if "" not in queue and queue["profile"].lower() not in gone:
                name = self._now("profiles", queue["profile"])
                rows[name.lower()] = {**queue, "profile": name}
        given = self._join_queues(policy, rows)
        is_pruned = "queues" in self.prune and not self._is_live("policies", policy, "queues")
        found: list[Row] = []
        for key, queue in rows.items():
            if queue["name"].lower() in closed or (is_pruned and key not in given):
                self._removed["queues"].append(queue["name"])
                continue
            if key in given:
                self.places[f"policies[{at}].queues[{len(found)}]"] = given[key]
            found.append(queue)
        return found

    def _join_queues(self, policy: Row, rows: dict[str, Row]) -> dict[str, str]:
        """Put the queues of the file onto those of a policy; returns their places by profile."""
        given: dict[str, str] = {}
        for queue in (one for one in policy["queues"] if "" in one):
            path, key = queue.pop(""), queue["profile"].strip().lower()
            merged = {"name": "", **rows.get(key, {}), **queue}
            if key in given:
                raise _bad(f"{path}.profile", f"{queue['profile']!r} is there twice")
            if {merged["name"], rows.get(key, {}).get("name")} & set(self.remove.queues):
                raise _bad(path, f"queue {merged['name']!r} is to be removed, too")
            rows[key], given[key] = merged, path
            self.named["queues"].add((policy["name"].strip().lower(), key))
        return given

    def _amounts(self, policies: list[Row], keys: Iterable[str]) -> None:
        """Amounts that the file gives policies as texts, and a budget that is a number as one."""
        problems: dict[str, str] = {}
        known = sorted(keys)
        for index, policy in enumerate(policies):
            for name in ("reserved", "limit", "user_limit"):
                if self._is_live("policies", policy, name):
                    continue
                path = _translate(f"policies[{index}].{name}", self.places)
                try:
                    policy[name] = quantities_text(policy[name], field=path, keys=known)
                except BadInput as error:
                    problems |= error.fields
            budget = policy.get("budget")
            if isinstance(budget, int | float) and not isinstance(budget, bool):
                policy["budget"] = str(budget)
        problems_refuse(problems)


def _over(row: Row, given: object, path: str) -> Row:
    if not isinstance(given, Mapping):
        raise _bad(path, "must be an object")
    return {**row, **given}


def _mapping(value: object) -> Mapping[str, Any]:
    # A bare number counts GPUs.
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _bad(path: str, problem: str) -> BadInput:
    return BadInput(f"{path} {problem}.", fields={path: problem})
