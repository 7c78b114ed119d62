"""A registry on loopback that serves images by the OCI protocol to known users.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md, the pull part, with Basic
credentials over plain HTTP. Images are made here: busybox, and a word of their own.
"""

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from tests.services.podman import root_of_image

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(slots=True)
class Registry:
    """The content: blobs and manifests by digest, tags by (repository, tag).

    `people` maps names to passwords of users who may fetch; empty: everyone. `asked` are the
    requests with their users. A refusal repeats the credentials that were sent, as a careless
    registry would.
    """

    host: str = ""
    people: dict[str, str] = field(default_factory=dict)
    content: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[tuple[str, str], str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    # Answers wait until it is set.
    is_open: Event = field(default_factory=Event)

    def push(self, repository: str, tag: str, *, word: str, is_list: bool = False) -> str:
        """Put an image there whose file /word says `word`; the digest that the tag stands for.

        Args:
            is_list: the tag names a list of images for several architectures.
        """
        layer = _layer(word)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._kept(CONFIG, json.dumps(config).encode()),
            "layers": [self._kept(LAYER, layer)],
        }
        named = self._kept(MANIFEST, json.dumps(manifest).encode())
        if is_list:
            platform = {"architecture": "amd64", "os": "linux"}
            index = {
                "schemaVersion": 2,
                "mediaType": INDEX,
                "manifests": [{**named, "platform": platform}],
            }
            named = self._kept(INDEX, json.dumps(index).encode())
        digest = str(named["digest"])
        self.tags[repository, tag] = digest
        return digest

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables that let podman speak to it without TLS, and take it for Docker Hub."""
        path = folder / "registries.conf"
        hub = f'[[registry]]\nprefix = "docker.io"\nlocation = "{self.host}"\ninsecure = true\n'
        path.write_text(f'[[registry]]\nlocation = "{self.host}"\ninsecure = true\n{hub}')
        return {"CONTAINERS_REGISTRIES_CONF": str(path)}

    def _kept(self, kind: str, content: bytes) -> dict[str, object]:
        digest = _digest(content)
        self.content[digest] = (kind, content)
        return {"mediaType": kind, "digest": digest, "size": len(content)}


@contextmanager
def running_registry() -> Iterator[Registry]:
    """A registry without images, until the end."""
    registry = Registry()
    registry.is_open.set()

    class Handler(_Handler):
        of = registry

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.is_open.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    of: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.of.is_open.wait()
        sent = self.headers.get("Authorization", "")
        name, _, password = _unpacked(sent).partition(":")
        is_known = not self.of.people or (name and self.of.people.get(name) == password)
        self.of.asked.append((name if is_known else "", self.path))
        if not is_known:
            words = {"errors": [{"code": "UNAUTHORIZED", "message": f"you sent {sent}"}]}
            self._answer(401, "application/json", json.dumps(words).encode())
        elif self.path == "/v2/":
            self._answer(200, "application/json", b"{}")
        else:
            self._send()

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self) -> None:
        *folders, kind, wanted = self.path.removeprefix("/v2/").split("/")
        repository = "/".join(folders)
        digest = self.of.tags.get((repository, wanted), wanted)
        found = self.of.content.get(digest) if kind in ("manifests", "blobs") else None
        if found is None:
            words = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            self._answer(404, "application/json", json.dumps(words).encode())
        else:
            self._answer(200, found[0], found[1], digest)

    def _answer(self, status: int, kind: str, body: bytes, digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are recorded in `asked`, not in a log."""


def _unpacked(header: str) -> str:
    try:
        return base64.b64decode(header.removeprefix("Basic ")).decode()
    except ValueError:
        return ""


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _layer(word: str) -> bytes:
    archive = io.BytesIO(root_of_image())
    with tarfile.open(fileobj=archive, mode="a") as root:
        entry = tarfile.TarInfo("word")
        entry.size = len(word)
        root.addfile(entry, io.BytesIO(word.encode()))
    return archive.getvalue()
