"""`make install-test`: docs/installing.md played literally on bare Debian machines.

Needs root, debootstrap, overlay file systems, and Debian's packages, PyPI and npm. Takes some ten
minutes the first time; the bare file system is kept in the user's cache folder.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.install.blocks import Block, blocks
from tests.install.machine import Machine, debian, machine, network, say

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = "/root/rpm.bundle"
# What a reader puts in, too, or what this machine cannot have: images come from a registry.
REPLACED = {
    "https://git.example.org/rpm.git": BUNDLE,
    "rpm-manage node prepare": "rpm-manage node prepare --allow process",
    "rpm-manage node add gpu01": (
        "rpm-manage node add gpu01 $STATE_DIR --runtime process --allow-process --simulated-gpus 8"
    ),
    " --image docker.io/library/debian:12": "",
}
# What "Undoing the installation" removes, next to the units, the account and the database.
REMOVED = (
    "/opt/rpm",
    "/etc/rpm",
    "/var/lib/rpm",
    "/usr/local/sbin/rpm-manage",
    "/etc/nginx/sites-enabled/rpm",
    "/etc/ssl/rpm",
)
HOSTS = "127.0.0.1 localhost rpm.example.org gpu01.example.org\n"
UNDOING = "Undoing the installation"
SYSTEMCTL = "/usr/local/bin/systemctl"
# Until the first pass was made, and nodes have answered after a restart, `doctor` says so.
DOCTOR = "rpm-manage doctor\n"
PATIENT = f"for i in $(seq 60); do rpm-manage doctor && break; sleep 2; done\n{DOCTOR}"


def main() -> int:
    started = time.monotonic()
    found = blocks()
    with tempfile.TemporaryDirectory(prefix="rpm-install-test-") as name, ExitStack() as stack:
        folder = Path(name)
        net = stack.enter_context(network())
        bare = debian()
        programs = folder / "programs"
        with machine(programs, lower=str(bare), network=net) as builder:
            _source(builder.path(BUNDLE))
            for block in _under(found, "Programs"):
                _play(block, builder)
        lower = f"{programs / 'upper'}:{bare}"
        rpm = stack.enter_context(machine(folder / "rpm", lower=lower, network=net))
        gpu01 = stack.enter_context(machine(folder / "gpu01", lower=str(bare), network=net))
        _first_to_last(found, rpm, gpu01)
        session = rpm.path("/root/.session").read_text()
        saturday = rpm.path("/var/lib/rpm/saturday.backup").read_bytes()
        _undone(found, rpm)
        backups = {"saturday": saturday, "last": rpm.path("/root/last.backup").read_bytes()}
        rpm.run("systemctl stop nginx redis-server postgresql")
        second = stack.enter_context(machine(folder / "second", lower=lower, network=net))
        _restored(found, second, backups, session=session)
    say(f"\n{len(found)} blocks played, 0 failed, in {time.monotonic() - started:.0f} s\n")
    return 0


def _first_to_last(found: list[Block], rpm: Machine, gpu01: Machine) -> None:
    """From the account to the backup, on the first machine; a new version arrives in between."""
    _fit_out(rpm)
    for block in found:
        if block.heading in {"Programs", UNDOING} or block.machine == "second":
            continue
        if block.machine == "gpu01":
            script = rpm.path("/root/prepare-gpu01.sh").read_text()
            gpu01.path("/root/prepare-gpu01.sh").write_text(script)
            printed = re.search(r"--state-dir \S+", _play(block, gpu01, is_online=True))
            state_dir = printed[0] if printed else ""
            rpm.run(f"FINGERPRINT={_serve_ssh(gpu01)}\nSTATE_DIR='{state_dir}'")
            continue
        if block.heading == "Upgrade":
            _source(rpm.path(BUNDLE), is_newer=True)
        output = _play(block, rpm)
        if block.heading == "First task":
            assert "hello" in output.splitlines(), output
            assert '"state": "completed"' in output, output
        if block.heading == "Proxy":
            _answers(rpm)


def _undone(found: list[Block], rpm: Machine) -> None:
    """The last section, on the first machine: nothing is left but the copied backup."""
    for block in _under(found, UNDOING):
        _play(block, rpm)
    for name in REMOVED:
        assert not rpm.path(name).exists(), f"{name} is left"
    units = rpm.path("/etc/systemd/system")
    assert not list(units.glob("rpm*")), [path.name for path in units.iterdir()]
    output = rpm.run(
        "getent passwd rpm || echo no account\n"
        "runuser -u postgres -- psql --list --quiet --tuples-only --no-align | cut -d'|' -f1\n"
        "runuser -u postgres -- psql --quiet --tuples-only --command 'SELECT rolname FROM pg_roles'"
    )
    assert "no account" in output.splitlines(), output
    assert "rpm" not in output.split(), output
    output = rpm.run("curl --insecure -sS https://rpm.example.org/healthz || echo no answer")
    assert "no answer" in output.splitlines(), output


def _restored(
    found: list[Block], second: Machine, backups: dict[str, bytes], *, session: str
) -> None:
    _fit_out(second)
    for heading in ("Account, database and Redis", "Settings and services", "Proxy"):
        for block in _under(found, heading):
            _play(block, second)
    for name, content in backups.items():
        second.path(f"/var/lib/rpm/{name}.backup").write_bytes(content)
    second.run(
        "chown rpm: /var/lib/rpm/*.backup\nrpm-manage backup --verify /var/lib/rpm/last.backup"
    )
    # The same administrator, with the same credential.
    kept = [line for line in session.splitlines() if line.startswith("declare -x RPM_")]
    trust = "export SSL_CERT_FILE=/etc/ssl/rpm/fullchain.pem"
    second.run("\n".join([*kept, trust, "PATH=$PATH:/opt/rpm/.venv/bin"]))
    restore, confirm = [one for one in found if one.machine == "second"]
    _play(restore, second)
    _answers(second)
    output = second.run("rpm-manage doctor || true")
    assert "Suspended until confirmed" in output, output
    _play(confirm, second)
    output = second.run(
        f"{PATIENT}rpmctl list\nTASK=$(rpmctl enqueue --queue team -- echo again)\n"
        'rpmctl logs --follow "$TASK"'
    )
    assert "again" in output.splitlines(), output


def _answers(rpm: Machine) -> None:
    """A process and the styles of the pages, through the proxy, with TLS."""
    ask = "for i in $(seq 60); do curl -sf $OPTIONS https://rpm.example.org/healthz && break; "
    output = rpm.run(
        f"OPTIONS='--cacert /etc/ssl/rpm/fullchain.pem'\n{ask}sleep 2; done\n"
        "curl -sf $OPTIONS https://rpm.example.org/static/dist/app.css | wc --bytes"
    )
    assert int(output.split()[-1]) > 1000, output


def _play(block: Block, on: Machine, *, is_online: bool = False) -> str:
    text = block.text.replace(DOCTOR, PATIENT)
    for old, new in REPLACED.items():
        text = text.replace(old, new)
    say(f"\n== {block.heading} ({block.machine})\n")
    return on.run(text, is_online=is_online or block.heading == "Programs")


def _under(found: list[Block], heading: str) -> Iterator[Block]:
    return (block for block in found if block.heading == heading)


def _fit_out(rpm: Machine) -> None:
    """What stands in for systemd and for the names of the site."""
    rpm.path(SYSTEMCTL).write_text((Path(__file__).parent / "systemctl.py").read_text())
    rpm.path(SYSTEMCTL).chmod(0o755)
    rpm.path("/etc/hosts").write_text(HOSTS)


def _serve_ssh(gpu01: Machine) -> str:
    """Start the node's SSH server; the fingerprint that `prepare` printed."""
    gpu01.run("mkdir -p /run/sshd; /usr/sbin/sshd")
    output = gpu01.run("ssh-keygen -l -f /etc/ssh/ssh_host_ed25519_key.pub")
    return output.split()[1]


def _source(target: Path, *, is_newer: bool = False) -> None:
    """This repository's last commit as something to clone, or one more on top of it."""
    commit = _git("rev-parse", "HEAD")
    if is_newer:
        tree = _git("rev-parse", "HEAD^{tree}")
        commit = _git("commit-tree", tree, "-p", commit, "-m", "The next version.")
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "copy.git"
        _git("clone", "--bare", "--quiet", "--shared", str(ROOT), str(copy))
        _git("--git-dir", str(copy), "update-ref", "refs/heads/main", commit)
        _git("--git-dir", str(copy), "symbolic-ref", "HEAD", "refs/heads/main")
        target.unlink(missing_ok=True)
        _git("--git-dir", str(copy), "bundle", "create", str(target), "HEAD", "main")


def _git(*words: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    done = subprocess.run(["git", *who, *words], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().strip()


if __name__ == "__main__":
    sys.exit(main())
