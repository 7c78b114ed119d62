"""The units of docker/systemd: what systemd itself says of them, and what they start."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.packages import find_program

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "docker" / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
# As systemd reads them.
WANTED = {
    "DATABASE_URL": "postgresql:///rpm?host=/run/x&a=b",
    "RPM_INSTALLATION_NAME": "Two words",
    "RPM_HOSTS": "a b",
    "RPM_HOME": "/var/lib/rpm",
}
HARDENING = {
    "CapabilityBoundingSet": "",
    "NoNewPrivileges": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectHome": "yes",
    "ProtectSystem": "strict",
    "RestrictSUIDSGID": "yes",
    "User": "rpm",
}


def entries(name: str) -> dict[str, str]:
    """The last value of every key."""
    lines = (UNITS / name).read_text().splitlines()
    pairs = [line.partition("=") for line in lines if "=" in line and not line.startswith("#")]
    return {key: value for key, _, value in pairs}


def test_there_is_a_unit_for_every_process_of_an_installation() -> None:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    ours = {name for name, service in compose.items() if "build" in service} - {"migrate"}

    assert {f"rpm-{name}" for name in ours} <= {
        name.removesuffix(".service").removesuffix("@") for name in SERVICES
    }
    assert "rpm-serve-passes.service" in SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_a_unit_is_hardened_and_belongs_to_the_target(name: str) -> None:
    found = entries(name)

    assert {key: found[key] for key in HARDENING} == HARDENING
    assert found["PartOf"] == "rpm.target"
    # The backup is started by its timer.
    assert found.get("WantedBy", "") == ("rpm.target" if name != "rpm-backup.service" else "")
    assert found["EnvironmentFile"] == "/etc/rpm/rpm.env"


@pytest.mark.parametrize("name", SERVICES)
def test_a_unit_starts_a_program_that_is_there_with_options_that_it_knows(name: str) -> None:
    command = shlex.split(entries(name)["ExecStart"].replace("%i", "1").replace("%%", "%"))
    program = Path(sys.executable).parent / Path(command[0]).name

    assert program.exists()
    if command[1].endswith("manage.py"):
        check = [str(program), "manage.py", command[2], "--help"]
        known = subprocess.run(check, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        assert all(word in known for word in command if word.startswith("--"))
    if program.name == "gunicorn":
        check = [str(program), "--check-config", *command[1:]]
        subprocess.run(check, cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("name", [*SERVICES, "rpm.target", "rpm-backup.timer"])
def test_systemd_understands_the_unit(name: str, tmp_path: Path) -> None:
    program = find_program("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze")
    for path in UNITS.iterdir():
        content = path.read_text()
        # The programs of this checkout stand for those of an installation.
        content = content.replace("/opt/rpm/.venv/bin", str(Path(sys.executable).parent))
        (tmp_path / path.name).write_text(content.replace("/opt/rpm", str(ROOT)))
    unit = tmp_path / name.replace("@.", "@1.")
    if not unit.exists():
        unit.symlink_to(tmp_path / name)

    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)], check=False, capture_output=True, text=True
    )

    # It checks every unit of the machine, too: only messages about those of RPM count.
    words = [line for line in done.stderr.splitlines() if "rpm" in line and "Failed" not in line]
    assert words == []


def test_every_variable_of_the_example_is_documented() -> None:
    names = re.findall(r"^([A-Z_]+)=", (UNITS / "rpm.env").read_text(), re.MULTILINE)
    documented = (ROOT / "docs" / "operating.md").read_text()

    assert names
    assert [name for name in names if f"`{name}`" not in documented] == []


def test_the_wrapper_gives_manage_py_the_variables_of_the_services(tmp_path: Path) -> None:
    script = (UNITS / "rpm-manage").read_text()
    echo = f"exec {sys.executable} -c 'import os; print(dict(os.environ))'"
    script = re.sub(r'exec .*/opt/rpm/manage.py "\$@"', lambda _: echo, script)
    (tmp_path / "env").write_text(
        "# RPM_DEBUG=1\n\nDATABASE_URL=postgresql:///rpm?host=/run/x&a=b\n"
        "RPM_INSTALLATION_NAME=\"Two words\"\nRPM_HOSTS='a b'\nRPM_HOME=/var/lib/rpm"
    )

    done = subprocess.run(
        ["sh", "-c", script],
        env={"PATH": os.environ["PATH"], "RPM_ENV_FILE": str(tmp_path / "env")},
        check=True,
        capture_output=True,
        text=True,
    )

    found = ast.literal_eval(done.stdout)
    assert {name: found.get(name) for name in WANTED} == WANTED
    assert "RPM_DEBUG" not in found
