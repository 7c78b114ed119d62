"""What the proxies of docker/ let through."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

from tools.packages import find_program

DOCKER = Path(__file__).resolve().parents[2] / "docker"
LIMITS = {"Caddyfile": r"max_size (\d+)MB", "Caddyfile.systemd": r"max_size (\d+)MB"}
LIMITS["nginx.conf"] = r"client_max_body_size (\d+)m;"


@pytest.mark.parametrize("name", LIMITS)
def test_no_body_is_cut_by_the_proxy_that_rest_would_read(name: str) -> None:
    found = re.search(LIMITS[name], (DOCKER / name).read_text())

    assert found is not None
    assert int(found[1]) * 1_000_000 >= settings.RPM_LARGEST_BODY


@pytest.mark.parametrize("name", LIMITS)
def test_sockets_go_to_the_processes_that_speak_them(name: str) -> None:
    content = (DOCKER / name).read_text()

    assert re.search(r"/ws/", content)
    assert "8001" in content
    assert re.search(r"/ws/tasks/.*?(8002|rpm_streams)", content, re.DOTALL)
    if name == "nginx.conf":
        sockets = content.partition("location /ws/")[2].partition("location / ")[0]
        assert "proxy_set_header Upgrade" in sockets
        assert re.search(r"proxy_read_timeout\s+1h;", sockets)


def test_whatever_nginx_tells_of_a_client_it_found_out_itself() -> None:
    """A location with headers of its own forgets those of its server."""
    content = (DOCKER / "nginx.conf").read_text()

    for location in re.findall(r"location [^{]*\{([^}]*)\}", content):
        assert re.search(r"X-Forwarded-Proto\s+\$scheme;", location)
        assert re.search(r"X-Forwarded-For\s+\$remote_addr;", location)
        # With the port, which `$host` leaves out.
        assert re.search(r"Host\s+\$http_host;", location)


def test_nginx_understands_its_example(tmp_path: Path) -> None:
    program = find_program("nginx")
    if program is None or not shutil.which("openssl"):
        pytest.skip("needs nginx and openssl")
    pair = ("-keyout", str(tmp_path / "privkey.pem"), "-out", str(tmp_path / "fullchain.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=x", *pair],
        check=True,
        capture_output=True,
    )
    content = (DOCKER / "nginx.conf").read_text()
    content = content.replace("/etc/ssl/rpm", str(tmp_path))
    (tmp_path / "site.conf").write_text(content)
    main = f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/site.conf; }}"
    (tmp_path / "main.conf").write_text(main)

    done = subprocess.run(
        [program, "-t", "-e", str(tmp_path / "log"), "-c", str(tmp_path / "main.conf")],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["Caddyfile", "Caddyfile.systemd"])
def test_caddy_understands_its_example(name: str) -> None:
    program = find_program("caddy")
    if program is None:
        pytest.skip("needs caddy")

    done = subprocess.run(
        [program, "adapt", "--adapter", "caddyfile", "--config", str(DOCKER / name)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
