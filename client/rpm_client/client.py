"""A small client of the REST interface, for programs and for `rpmctl`.

Needs nothing of the server: it can be used wherever httpx is.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from time import sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from rpm_client.errors import RefusedError, UnreachableError
from rpm_client.logs import LogReader
from rpm_client.submission import Submission

if TYPE_CHECKING:
    from typing import Self

TIMEOUT_S = 30.0
# For requests for which the server connects to a machine, or previews the whole configuration.
REACH_S = 180.0
# Retries of a request without an answer; each waits twice as long.
TRIES = 4


class Client(Submission):
    """A connection to one server, with the key and secret of a credential, or a token."""

    def __init__(self, url: str, *, key: str = "", secret: str = "", token: str = "") -> None:
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1/",
            auth=None if token else (key, secret),
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=TIMEOUT_S,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    def account(self) -> dict[str, Any]:
        """The account of the credential."""
        return self._object("GET", "account/")

    def task_submit(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Enqueue a task, or keep it as a draft where it names no queue.

        The request carries a key of its own, so that asking again never makes a second task.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return self._object("POST", "tasks/", json=dict(description), headers=headers)

    def task_bulk(self, descriptions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Enqueue up to 1,000 tasks; each answer has `task`, or `error`, and `status`."""
        found: list[dict[str, Any]] = self._json("POST", "tasks/bulk/", json=list(descriptions))
        return found

    def task(self, task_id: str) -> dict[str, Any]:
        return self._object("GET", _path(task_id))

    def attempts(self, task_id: str) -> list[dict[str, Any]]:
        """The admissions of a task, the latest first."""
        found: list[dict[str, Any]] = self._json("GET", f"{_path(task_id)}attempts/")
        return found

    def dependencies(self, task_id: str) -> list[dict[str, Any]]:
        """What a task waits for."""
        found: list[dict[str, Any]] = self._json("GET", f"{_path(task_id)}dependencies/")
        return found

    def task_do(self, task_id: str, verb: str, **values: Any) -> dict[str, Any]:
        """Do an action of REST such as `abort` or `change-queue`; return the task after it."""
        return self._object("POST", f"{_path(task_id)}{verb}/", json=values)

    def tasks_do(self, action: str, **values: Any) -> dict[str, Any]:
        """Do an action with many `tasks`, or with those of a `filter`; return all results."""
        body = {"action": action, **values}
        return self._object("POST", "tasks/bulk-actions/", json=body)

    def task_change(self, task_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change these fields of a draft."""
        return self._object("PATCH", _path(task_id), json=dict(changes))

    def task_delete(self, task_id: str) -> None:
        """Delete a draft that never ran."""
        answer = self._answer("DELETE", _path(task_id))
        if not answer.is_success:
            _content(answer)

    def task_check(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Whether the task would run if it were enqueued now; nothing is stored."""
        return self._object("POST", "tasks/check/", json=dict(description))

    def draft_preview(self) -> dict[str, Any]:
        """What provisioning the draft would do; for administrators."""
        return self._object("POST", "configuration/draft/preview/")

    def configuration_export(self, form: str = "yaml") -> tuple[str, int]:
        """The live configuration as a file, in `yaml` or `json`, and its revision."""
        headers = {"Accept": f"application/{form}"}
        answer = self._answer("GET", "configuration/export/", headers=headers)
        if not answer.is_success:
            _content(answer)
        # A proxy that compresses makes it a weak one.
        revision = answer.headers.get("etag", "").rpartition("/")[2].strip('"')
        if not revision.isdecimal():
            raise _no_server(answer)
        return answer.text, int(revision)

    def configuration_diff(self, file: bytes, *, prune: Sequence[str] = ()) -> dict[str, Any]:
        """What a configuration file would change, and its `preview`; nothing is kept."""
        return self._file("diff", file, {"prune": ",".join(prune)})

    def configuration_apply(
        self,
        file: bytes,
        *,
        note: str = "",
        revision: int | None = None,
        version: str = "",
        prune: Sequence[str] = (),
        is_dry_run: bool = False,
    ) -> dict[str, Any]:
        """Make the configuration as a file says, all or nothing.

        Args:
            revision: the last one that you know; a later one is refused.
            version: that of `configuration_diff`; refused where something changed since.
            prune: kinds of which everything is removed that the file does not name.
        """
        wanted = {"note": note, "revision": revision, "prune": ",".join(prune)}
        if version:
            wanted["version"] = version
        return self._file("apply", file, {**wanted, "dry_run": str(is_dry_run).lower()})

    def token(self, scope: str = "") -> dict[str, Any]:
        """A short-lived token for this credential, or for less: `read` or `enqueue`."""
        return self._object("POST", "token/", json={"scope": scope} if scope else {})

    def explain(self, task_id: str) -> dict[str, Any]:
        """Why a task waits, in sentences."""
        return self._object("GET", f"{_path(task_id)}explain/")

    def tasks(self, **filters: str | int) -> Iterator[dict[str, Any]]:
        """All tasks that match, page by page, the latest first."""
        return self._pages("tasks/", {k: v for k, v in filters.items() if v != ""})

    def task_checkpoint(self, task_id: str) -> dict[str, Any]:
        """The task's state is saved as of now."""
        return self._object("POST", f"{_path(task_id)}checkpoint/")

    def installation(self) -> dict[str, Any]:
        """Whether the database was restored, and planned work; for administrators."""
        return self._object("GET", "installation/")

    def maintenance(self, hours: float) -> dict[str, Any]:
        """Extend leases by this many hours from now; 0 ends it. For administrators."""
        return self._object("POST", "installation/maintenance/", json={"hours": hours})

    def restore_confirm(self) -> dict[str, Any]:
        """Confirm that the restored database is right; for administrators."""
        return self._object("POST", "installation/confirm-restored/")

    def nodes(self) -> Iterator[dict[str, Any]]:
        """All nodes; for administrators, as all that follows."""
        return self._pages("nodes/", {})

    def node_check(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Check a machine before it is added; without `fingerprint`, only get its host key."""
        return self._object("POST", "nodes/check/", json=dict(description), timeout=REACH_S)

    def node_add(self, description: Mapping[str, Any]) -> dict[str, Any]:
        return self._object("POST", "nodes/", json=dict(description), timeout=REACH_S)

    def node_change(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        return self._object("PATCH", self._node(name), json=dict(changes), timeout=REACH_S)

    def node_host_key(self, name: str) -> dict[str, Any]:
        """The fingerprints of the pinned key and of the one that the machine shows."""
        return self._object("GET", f"{self._node(name)}host-key/", timeout=REACH_S)

    def node_do(self, name: str, verb: str, **values: Any) -> dict[str, Any]:
        """`pause`, `resume`, `drain`, `declare-off`, `rekey`, `remove` or `dismiss-serial`."""
        return self._object("POST", f"{self._node(name)}{verb}/", json=values, timeout=REACH_S)

    def _node(self, name: str) -> str:
        found = list(self._pages("nodes/", {"name": name}))
        if not found:
            raise RefusedError(404, "not_found", f"There is no node {name!r}.", {})
        return f"nodes/{found[0]['id']}/"

    def pool_id(self, name: str) -> int:
        """The pool of that name."""
        ids = [pool["id"] for pool in self.pools() if pool["name"].lower() == name.lower()]
        if not ids:
            raise RefusedError(404, "not_found", f"There is no pool {name!r}.", {})
        return int(ids[0])

    def pools(self) -> Iterator[dict[str, Any]]:
        """With what their nodes have."""
        return self._pages("pools/", {})

    def queues(self) -> Iterator[dict[str, Any]]:
        """With what runs and waits in them."""
        return self._pages("queues/", {})

    def policies(self) -> Iterator[dict[str, Any]]:
        """With what they hold now, and those below them."""
        return self._pages("policies/", {})

    def usage(self, **wanted: str) -> dict[str, Any]:
        """What the policies that you see held over time; see docs/usage.md."""
        return self._object("GET", "usage/", params=wanted)

    def log(self, task_id: str, *, rank: int = 0, offset: int | None = None) -> dict[str, Any]:
        """A part of what a member wrote: its end, or from `offset` on."""
        wanted = {"rank": rank} | ({} if offset is None else {"offset": offset})
        return self._object("GET", f"{_path(task_id)}logs/", params=wanted)

    def log_follow(self, task_id: str, *, rank: int = 0, every_s: float = 1.0) -> Iterator[str]:
        """What a member writes, until its task has ended; another attempt from its beginning."""
        return LogReader(self, task_id, rank=rank).parts(every_s)

    def logs_follow(
        self, sources: Sequence[tuple[str, int]], *, every_s: float = 1.0
    ) -> Iterator[tuple[tuple[str, int], str]]:
        """Whole lines of several members, each a task and a rank, until all tasks have ended."""
        readers = {source: LogReader(self, source[0], rank=source[1]) for source in sources}
        begun = dict.fromkeys(readers, "")
        while readers:
            has_news = False
            for source, reader in list(readers.items()):
                text = reader.read()
                has_news = has_news or not reader.is_idle
                lines, line_end, begun[source] = (begun[source] + text).rpartition("\n")
                if reader.is_over:
                    del readers[source]
                    lines, line_end, begun[source] = lines + line_end + begun[source], "", ""
                if lines + line_end:
                    yield source, lines + line_end
            if readers and not has_news:
                sleep(every_s)

    def objects(self, noun: str) -> Iterator[dict[str, Any]]:
        """All objects of a noun of REST that you may see, such as `policies`."""
        return self._pages(f"{noun}/", {})

    def object_get(self, path: str) -> tuple[dict[str, Any], str]:
        """An object, and its version for `If-Match`; empty where it has none."""
        answer = self._answer("GET", path)
        found: dict[str, Any] = _content(answer)
        return found, answer.headers.get("etag", "")

    def object_do(
        self, method: str, path: str, values: Mapping[str, Any] | None, *, etag: str = ""
    ) -> dict[str, Any]:
        """Create, change or delete an object; with the version that was read, only this one."""
        options: dict[str, Any] = {} if values is None else {"json": dict(values)}
        if etag:
            options["headers"] = {"If-Match": etag}
        return _content(self._answer(method, path, **options)) or {}

    def _file(self, verb: str, file: bytes, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Send a configuration file, with those parameters that have a value."""
        return self._object(
            "POST",
            f"configuration/{verb}/",
            params={name: value for name, value in wanted.items() if value not in ("", None)},
            content=file,
            headers={"Content-Type": f"application/{_form(file)}"},
            timeout=REACH_S,
        )

    def _pages(self, path: str, wanted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        params = dict(wanted)
        while True:
            page = self._object("GET", path, params=params)
            yield from page["results"]
            if not page["next"]:
                return
            # Only the key is used: the secret goes to no other server.
            params["cursor"] = httpx.URL(page["next"]).params["cursor"]

    def _object(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._json(method, path, **options)
        return found

    def _json(self, method: str, path: str, **options: Any) -> Any:
        return _content(self._answer(method, path, **options))

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer; a request that can be repeated is, where the server is away for a moment.

        Raises:
            UnreachableError: there was none.
        """
        is_repeatable = method == "GET" or "Idempotency-Key" in options.get("headers", ())
        for attempt in range(TRIES):
            try:
                answer = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if attempt + 1 == TRIES or not is_repeatable:
                    raise UnreachableError(
                        f"{self._http.base_url} does not answer: {error}"
                    ) from error
            else:
                is_away = answer.status_code in {502, 503, 504}
                if not is_away or attempt + 1 == TRIES or not is_repeatable:
                    return answer
            sleep(0.5 * 2**attempt)
        raise UnreachableError(f"{self._http.base_url} does not answer.")


def _content(answer: httpx.Response) -> Any:
    """What REST answered; None where that is nothing.

    Raises:
        RefusedError: it refused.
        UnreachableError: something else answered, such as a proxy.
    """
    if answer.is_success:
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise _no_server(answer) from None
    try:
        # Where YAML was asked for, refusals are YAML, too.
        is_yaml = "yaml" in answer.headers.get("content-type", "")
        payload = import_module("yaml").safe_load(answer.text) if is_yaml else answer.json()
        raise RefusedError(
            answer.status_code, payload["code"], payload["detail"], payload["fields"]
        )
    except (ValueError, KeyError, TypeError):
        raise _no_server(answer) from None


def _no_server(answer: httpx.Response) -> UnreachableError:
    """Something else answered, such as the page of a proxy where users sign in."""
    kind = answer.headers.get("content-type", "").partition(";")[0] or "something else"
    return UnreachableError(
        f"{answer.url} answered {answer.status_code} with {kind}, not as a server of RPM does."
    )


def _form(file: bytes) -> str:
    """Whether it is `json`; the rest is `yaml`, which reads escapes of JSON otherwise."""
    try:
        json.loads(file)
    except (ValueError, RecursionError):
        return "yaml"
    return "json"


def _path(task_id: str) -> str:
    """The address of a task; nothing in an id leads elsewhere."""
    return f"tasks/{quote(task_id, safe='')}/"
