"""The web's own defences, over every address there is."""

import asyncio
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from apps.accounts.models import User
from apps.accounts.services.people import user_create
from rpm.asgi import application
from tests.people import Example
from tests.services.timeouts import scale_timeout

ROOT = Path(__file__).resolve().parents[2]
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
# Where the cookies of a browser count for nothing: nobody is signed in by them there.
WITHOUT_COOKIES = re.compile(r"^/api/v1/(token/)?$|^/sign-in/with/[^/]+/acs/$")
SAMPLES = ("1", str(uuid.UUID(int=7)), "some-name", "policies", "a", "queue.1.read.person")


def addresses() -> list[str]:
    """One address per pattern of the whole configuration."""
    return sorted(set(_addresses(get_resolver().url_patterns, "^/")))


def _addresses(patterns: list[Any], prefix: str) -> Iterator[str]:
    for one in patterns:
        regex = prefix.rstrip("$") + one.pattern.regex.pattern.lstrip("^")
        regex = regex.replace(r"\Z", "").replace("\\A", "")
        if isinstance(one, URLResolver):
            yield from _addresses(one.url_patterns, regex)
        elif isinstance(one, URLPattern):
            yield _example(regex)


def _example(regex: str) -> str:
    """An address that the pattern takes."""
    plain = regex.strip("^$")
    while found := re.search(r"\(\?P<\w+>((?:[^()]|\([^()]*\))*)\)", plain):
        part = found[1]
        value = next((one for one in SAMPLES if re.fullmatch(part, one)), "1")
        plain = plain[: found.start()] + value + plain[found.end() :]
    plain = re.sub(r"\(\?:([^|()]*)(\|[^()]*)?\)\??", r"\1", plain)
    return re.sub(r"\\(.)", r"\1", plain).replace("/?", "/").replace("$", "")


def test_the_walk_finds_what_there_is() -> None:
    found = addresses()

    assert len(found) > 200
    for known in ("/tasks/", "/api/v1/tasks/", "/settings/audit/", "/admin/login/"):
        assert known in found


@pytest.mark.django_db
def test_no_form_of_another_page_does_anything_with_my_cookies(root: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(root)
    let_in = []

    for path in addresses():
        for method in UNSAFE:
            status = client.generic(method, path, "{}", content_type="application/json").status_code
            if status != 403 and not WITHOUT_COOKIES.match(path):
                let_in.append(f"{method} {path} answers {status}")

    assert let_in == []


@pytest.mark.django_db
def test_every_page_says_what_may_run_in_it(root: User, example: Example) -> None:
    client = Client()
    client.force_login(root)
    wrong = []

    for path in addresses():
        answer = client.get(path)
        policy = answer.headers.get("Content-Security-Policy", "")
        scripts = re.search(r"script-src ([^;]*)", policy)
        allowed = scripts[1] if scripts else "'self'"
        if "default-src 'self'" not in policy or "unsafe-inline" in allowed:
            wrong.append(f"{path}: {policy}")
        if "unsafe-eval" in allowed and not path.startswith("/admin/"):
            wrong.append(f"{path}: {policy}")
        for name, value in KEPT_HEADERS.items():
            if value not in answer.headers.get(name, ""):
                wrong.append(f"{path}: {name}: {answer.headers.get(name)}")

    assert wrong == []


KEPT_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=()",
    "Cache-Control": "no-store",
}


@pytest.mark.django_db
def test_no_page_of_ours_holds_an_inline_script(root: User, example: Example) -> None:
    client = Client()
    client.force_login(root)
    wrong = []

    for path in addresses():
        answer = client.get(path)
        if answer.status_code == 200 and "text/html" in answer.headers["Content-Type"]:
            page = answer.content.decode()
            inline = re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*json)[^>]*>\s*[^<\s]", page)
            handlers = re.findall(r"<[^>]+\son(?:click|load|error|submit|change)=", page)
            wrong += [f"{path}: {one}" for one in inline + handlers]

    assert wrong == []


EVIL = (
    "https://evil.example/",
    "//evil.example/",
    "///evil.example/",
    "/\\evil.example/",
    "\\\\evil.example/",
    "http:evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    "https://testserver@evil.example/",
    "https://testserver.evil.example/",
    "/\t/evil.example/",
    "\x00https://evil.example/",
    " https://evil.example/",
)


@pytest.mark.django_db
@pytest.mark.parametrize("given", EVIL)
def test_signing_in_leads_to_no_other_site(given: str) -> None:
    user_create(username="dana", password="correct horse battery")
    values = {"username": "dana", "password": "correct horse battery", "next": given}

    answer = Client().post("/sign-in/", values)

    assert (answer.status_code, answer.headers["Location"]) == (302, "/")


@pytest.mark.django_db
def test_no_address_redirects_to_another_site(root: User, example: Example) -> None:
    """Whatever stands in the query, and where the path itself begins with two slashes."""
    client = Client()
    client.force_login(root)
    names = ("next", "url", "to", "return", "redirect", "from", "with", "back", "before", "cursor")
    query = "&".join(f"{name}=//evil.example/" for name in names)
    led = []

    for path in addresses():
        for asked in (f"{path}?{query}", f"//evil.example{path}"):
            answer = client.get(asked)
            target = answer.headers.get("Location", "/")
            if not target.startswith("/") or target.startswith(("//", "/\\")):
                led.append(f"{asked}: {target}")

    assert led == []


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param({"host": "localhost:8000", "origin": "http://localhost:8000"}, True, id="own"),
        pytest.param({"host": "localhost:8000", "origin": "http://localhost:9"}, False, id="port"),
        pytest.param({"host": "localhost", "origin": "https://evil.example"}, False, id="foreign"),
        pytest.param({"host": "evil.example", "origin": "https://evil.example"}, False, id="host"),
        pytest.param({"host": "localhost", "origin": "null"}, False, id="a sandboxed frame"),
        pytest.param({"host": "localhost", "origin": "file://"}, False, id="a file"),
        pytest.param(
            {"host": "localhost", "origin": "http://localhost.evil.example"}, False, id="like"
        ),
        pytest.param({"host": "localhost"}, False, id="no origin and no credential"),
        pytest.param({"host": "[::1]:8000", "origin": "http://[::1]:8000"}, True, id="IPv6"),
    ],
)
def test_sockets_open_for_pages_of_ours_only(headers: dict[str, str], want: bool) -> None:
    scope = {
        "type": "websocket",
        "path": "/ws/live/",
        "query_string": b"",
        "subprotocols": [],
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def opens() -> bool:
        # Comes without types.
        socket: Any = cast(Any, ApplicationCommunicator)(application, scope)
        await socket.send_input({"type": "websocket.connect"})
        answer = await socket.receive_output(timeout=scale_timeout(20))
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        return bool(answer["type"] == "websocket.accept")

    assert asyncio.run(opens()) is want


@pytest.mark.django_db
@pytest.mark.parametrize("length", ["20000001", "9" * 30, "-1", "x", "٣"])
def test_a_body_that_says_it_is_too_large_is_refused_unread(length: str) -> None:
    answer = Client().post(
        "/sign-in/", b"a=b", content_type="application/x-www-form-urlencoded", CONTENT_LENGTH=length
    )

    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "headers", "most"),
    [
        ("/sign-in/", {}, 2_000_000),
        ("/api/v1/tasks/bulk/", {}, 2_000_000),
        ("/api/v1/tasks/bulk/", {"authorization": "Basic x"}, 20_000_000),
        ("/api/v1/tasks/bulk", {"cookie": "sessionid=x"}, 20_000_000),
        ("/sign-in/", {"cookie": "sessionid=x"}, 5_000_000),
        ("/api/v1/tasks/", {"authorization": "Basic x"}, 5_000_000),
    ],
)
def test_each_path_takes_what_it_needs_and_less_from_who_is_not_signed_in(
    path: str, headers: dict[str, str], most: int
) -> None:
    client = Client(headers=headers)
    answers = [
        client.post(path, b"x", content_type="text/plain", CONTENT_LENGTH=str(length))
        for length in (most, most + 1)
    ]

    assert answers[0].status_code != 413
    assert answers[1].status_code == 413
    assert f"at most {most} bytes" in answers[1].json()["detail"]


def test_the_documented_production_settings_pass_djangos_own_checks(tmp_path: Path) -> None:
    written = (ROOT / "docker" / "systemd" / "rpm.env").read_text(encoding="utf-8")
    documented = dict(
        line.split("=", 1) for line in written.splitlines() if line and not line.startswith("#")
    )
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment = kept | documented | {"RPM_HOME": str(tmp_path), "REDIS_URL": "redis://localhost"}
    environment |= {"DATABASE_URL": f"sqlite:///{tmp_path}/rpm.sqlite3"}
    for name in [name for name in environment if name.endswith("_FILE")]:
        del environment[name]

    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_what_is_silenced_is_a_choice_of_whoever_runs_it() -> None:
    assert settings.SILENCED_SYSTEM_CHECKS == ["security.W005", "security.W008", "security.W021"]
