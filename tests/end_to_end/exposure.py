"""Everything of an installation that another user could read, for a test that searches it."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx
import psycopg
import redis
from psycopg import sql

from tests.end_to_end.installation import Installation
from tests.services.podman import PodmanStore
from tests.services.timeouts import scale_timeout

MOST_PAGES = 150
_LINK = re.compile(rb'(?:href|hx-get)="([^"]+)"')
_CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


@dataclass
class Processes:
    """The view of processes that any account of the machine has, sampled repeatedly."""

    seen: set[bytes] = field(default_factory=set)

    @contextmanager
    def watched(self) -> Iterator[None]:
        is_over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(is_over,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _watch(self, is_over: threading.Event) -> None:
        while not is_over.wait(0.02):
            for folder in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        self.seen.add((folder / name).read_bytes())
                    except OSError:
                        continue


@dataclass
class Answers:
    """Every response that clients got, except those that show a secret once."""

    heard: dict[str, bytes] = field(default_factory=dict)
    codes: list[int] = field(default_factory=list)

    def listen(self, who: str, http: httpx.Client, *, shown_once: tuple[str, ...]) -> None:
        def note(answer: httpx.Response) -> None:
            path = answer.request.url.path
            self.codes.append(answer.status_code)
            is_shown = answer.request.method == "POST" and path.endswith(shown_once)
            if is_shown and answer.status_code == 201:
                return
            answer.read()
            name = f"{who}: {answer.request.method} {path}, answer {len(self.heard)}"
            headers = str(list(answer.headers.multi_items())).encode()
            self.heard[name] = answer.content + b"\n" + headers

        http.event_hooks["response"].append(note)


def pages(installation: Installation, name: str, password: str) -> dict[str, bytes]:
    """Every page that this user reaches by links from the overview, as HTML."""
    found: dict[str, bytes] = {}
    with httpx.Client(
        base_url=installation.address, timeout=scale_timeout(60), follow_redirects=True
    ) as browser:
        form = browser.get("/sign-in/").text
        token = _CSRF.search(form)
        assert token, form
        given = {"username": name, "password": password, "csrfmiddlewaretoken": token[1]}
        answer = browser.post("/sign-in/", data=given)
        assert answer.url.path == "/", answer.text
        waiting = ["/"]
        while waiting and len(found) < MOST_PAGES:
            path = waiting.pop(0)
            if path in found:
                continue
            answer = browser.get(path)
            assert answer.status_code < 500, path
            found[path] = answer.content
            waiting += _links(path, answer)
    return {f"page {path} of {name}": content for path, content in found.items()}


def _links(page: str, answer: httpx.Response) -> list[str]:
    """Addresses of the same installation in the page, without static files."""
    if "html" not in answer.headers.get("content-type", ""):
        return []
    found = []
    for given in _LINK.findall(answer.content):
        address = urldefrag(urljoin(page, given.decode().replace("&amp;", "&")))[0]
        parts = urlsplit(address)
        if not parts.netloc and not parts.path.startswith(("/static/", "/admin/")):
            found.append(address)
    return list(dict.fromkeys(found))


def stored(url: str) -> dict[str, bytes]:
    """Every row of every table, and the log of the server; SQLite's file is one of the others."""
    if not url.startswith("postgresql://"):
        return {}
    with psycopg.connect(url, autocommit=True) as session:
        tables = session.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        found = {}
        for (name,) in tables:
            query = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(name))
            rows = session.execute(query).fetchall()
            found[f"table {name}"] = "\n".join(row[0] for row in rows).encode()
        row = session.execute("SHOW data_directory").fetchone()
        assert row is not None
        found["log of PostgreSQL"] = (Path(row[0]).parent / "log").read_bytes()
        return found


def in_redis(installation: Installation) -> dict[str, bytes]:
    """Everything that Redis holds at this moment."""
    path = Path(installation.environment["RPM_HOME"]) / "redis.sock"
    client: Any = redis.Redis(unix_socket_path=str(path))
    values = [key + b" " + (client.dump(key) or b"") for key in client.scan_iter()]
    return {"redis": b"\n".join(values)}


def in_files(folder: Path) -> dict[str, bytes]:
    """Logs, the database of SQLite, and all other files that the programs left."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def on_node(home: Path) -> dict[str, bytes]:
    """The files of the helper on the node, without the output that the task itself wrote."""
    found = in_files(home)
    return {path: content for path, content in found.items() if not path.endswith("/log")}


def inspected(podman: PodmanStore) -> bytes:
    """The description of all containers and secrets by podman."""
    containers = podman.run("container", "inspect", *sorted(podman.names())).stdout
    return containers + podman.run("secret", "ls").stdout
