"""Real identity providers from npm, on loopback, whose people a test names."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from apps.accounts.identity.keys import key_pair_new
from tests.services import ports
from tests.services.requirements import need
from tools.assets import BuildFailed, find_node

ROOT = Path(__file__).resolve().parents[2]
CLIENT_ID = "rpm"
CLIENT_SECRET = "what-only-the-two-of-them-know-0123456789"
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Server:
    """A running provider; `key` and `certificate` are a SAML provider's."""

    port: int
    key: str = ""
    certificate: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def discovery(self) -> str:
        return f"{self.address}/.well-known/openid-configuration"

    def person(self, uid: str, **claims: Any) -> None:
        """The person who logs in from now on."""
        body = {"current": uid, "people": {uid: claims}}
        httpx.post(f"{self.address}/people", json=body).raise_for_status()

    def metadata(self) -> str:
        return httpx.get(f"{self.address}/metadata").raise_for_status().text


@contextmanager
def running_oidc(*callbacks: str, pkce: bool = True, method: str = "post") -> Iterator[Server]:
    """Npm's oidc-provider, with one client that comes back to these addresses."""
    client = {
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "redirect_uris": list(callbacks),
        "token_endpoint_auth_method": f"client_secret_{method}",
    }
    with _running("oidc.mjs", {"clients": [client], "pkce": pkce}) as port:
        yield Server(port)


@contextmanager
def running_saml(acs: str, entity_id: str) -> Iterator[Server]:
    """Npm's samlify as a provider that knows one installation."""
    certificate, key = key_pair_new("provider")
    given = {"acs": acs, "entity_id": entity_id, "key": key, "certificate": certificate}
    with _running("saml.mjs", given) as port:
        yield Server(port, key, certificate)


@contextmanager
def _running(script: str, configuration: Mapping[str, Any]) -> Iterator[int]:
    if not (ROOT / "node_modules" / "oidc-provider").exists():
        need("identity providers", because="run `python tools/assets.py --dev`")
    try:
        node, _npm = find_node()
    except BuildFailed as error:
        need("Node.js", because=str(error))
    for attempt in range(ATTEMPTS):
        port = ports.free_port()
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [node, ROOT / "tests" / "identity" / "servers" / script],
                cwd=ROOT,
                env=os.environ | {"IDENTITY_SERVER": json.dumps({"port": port, **configuration})},
                stdout=log,
                stderr=log,
                preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
            )
            try:
                ports.wait_for_server(process, partial(ports.listens, process, port), what=script)
            except ports.ServerDidNotStart as error:
                ports.stop(process, signal=signal.SIGTERM)
                log.seek(0)
                if attempt == ATTEMPTS - 1:
                    words = log.read().decode(errors="replace")[-2000:]
                    raise ports.ServerDidNotStart(words) from error
                continue
            try:
                yield port
            finally:
                ports.stop(process, signal=signal.SIGTERM)
            return
