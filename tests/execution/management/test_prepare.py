"""`manage.py node prepare`: what the script says, and what it does to a machine.

The machine is this one with everything written elsewhere: an overlay over the whole file system in
a mount namespace of its own, which is gone when the test ends. Only apt is a stand-in there.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.execution.client import NodeClient
from apps.execution.management.prepare_script import MachineSetup, script_for
from apps.execution.protocol.outcomes import NodeRefusal
from apps.execution.transport.base import ExchangeFailed
from apps.execution.transport.host_keys import ssh_host_key
from apps.execution.transport.ssh import SshNode, SshTransport
from apps.nodes.models import Installation
from tests.execution.nodes import INSTALLATION, TestedNode
from tests.install.blocks import DOCUMENT, blocks
from tests.services import ports
from tests.services.requirements import need
from tests.services.timeouts import scale_timeout

PREPARED_WITHIN_S = 240
REMOVAL = "Removing a preparation"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB7k2a0mD0jvKc1J4g2r9r8V1o3V4w4w4w4w4w4w4w4w alice@home"
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
# Says that everything is there, and writes down what it was asked for.
APT = """#!/bin/sh
echo "$(basename "$0") $*" >> /apt-was-asked
case "$*" in policy*) echo "  Candidate: 99.1" ;; esac
"""
SSHD = """
HostKey /etc/ssh/test_host_key_rsa
HostKey /etc/ssh/test_host_key_ecdsa
HostKey /etc/ssh/test_host_key_ed25519
ListenAddress 127.0.0.1
Port {port}
PidFile none
UsePAM no
"""
# A mount namespace whose root is an overlay, and a process namespace that ends with its first
# process, so that nothing started in it is left.
ENTER = """
set -e
mount -t tmpfs none {work}
mkdir {work}/upper {work}/work {work}/root
mount -t overlay overlay -o lowerdir=/,upperdir={work}/upper,workdir={work}/work {work}/root
mount --rbind /dev {work}/root/dev
mount -t proc proc {work}/root/proc
mount -t tmpfs none {work}/root/run
cp {given}/* {work}/root/usr/local/bin/
mkdir -p {work}/root/etc/ssh/sshd_config.d
mv {work}/root/usr/local/bin/sshd_config {work}/root/etc/ssh/sshd_config
for kind in {kinds}; do
    ssh-keygen -q -t $kind -N '' -f {work}/root/etc/ssh/test_host_key_$kind
done
# Bare, whatever accounts of these names this machine has.
rm -rf {work}/root/var/lib/rpm-node
sed -i '/^rpm/d' {work}/root/etc/passwd {work}/root/etc/group {work}/root/etc/shadow \
    {work}/root/etc/gshadow {work}/root/etc/subuid {work}/root/etc/subgid
exec chroot {work}/root /bin/sh /usr/local/bin/drive
"""
DRIVE = """
set -e
cd /
# An account of another program, and a folder of another account.
useradd --home-dir /opt/taken rpm-node
if /bin/sh /usr/local/bin/prepare; then echo AN ACCOUNT TAKEN; exit 1; fi
userdel rpm-node
install -d -o daemon /var/lib/rpm-node
if /bin/sh /usr/local/bin/prepare; then echo A FOLDER TAKEN; exit 1; fi
rmdir /var/lib/rpm-node
touch /usr/local/bin/prepare; sleep 0.1
/bin/sh /usr/local/bin/prepare
find /etc /usr/local/lib/rpm-node -newer /usr/local/bin/prepare -type f | sort > /first
cat $(cat /first) > /first-content
/bin/sh /usr/local/bin/prepare > /again
find /etc /usr/local/lib/rpm-node -newer /usr/local/bin/prepare -type f | sort > /second
cat $(cat /second) > /second-content
if ! cmp /first-content /second-content || grep wrote /again; then echo NOT THE SAME; exit 1; fi
echo FILES; cat /etc/ssh/rpm_node_keys /usr/local/lib/rpm-node/gate /apt-was-asked
/usr/sbin/sshd -T -C user=rpm-node,host=localhost,addr=127.0.0.1
getent passwd rpm-node; grep rpm-node /etc/subuid /etc/subgid; stat -c '%A %U %n' /var/lib/rpm-node
echo READY
exec /usr/sbin/sshd -D -e
"""

# systemd as far as a removal needs it. Ends the processes of an account, unless the machine has
# one that survives; fails for units that it does not know, as systemctl itself.
SYSTEMCTL = """#!/bin/sh
echo "$(basename "$0") $*" >> /systemd-was-asked
uid=$(echo "$*" | sed -n 's/.*user-\\([0-9]*\\)\\.slice.*/\\1/p')
case "$*" in
"kill --signal=KILL "*) [ -e /survives ] || pkill -KILL -u "$uid" ;;
"stop "*) [ -e /survives ] || while pgrep -u "$uid" > /dev/null; do sleep 0.1; done ;;
"disable "*) exit 1 ;;
esac
"""
LEAVE = """
set -e
cd /
mkdir -p /run/systemd/system
/bin/sh /usr/local/bin/prepare
install -d -o rpm-node /var/lib/rpm-node/state
setpriv --reuid=rpm-node --regid=rpm-node --init-groups setsid --fork sleep 1000
touch /etc/ssh/sshd_config.d/60-rpm-node.conf.refused
{before}
echo REMOVING
status=0; bash /usr/local/bin/remove || status=$?
echo STATUS $status
find /etc /usr/local/lib /var/lib -maxdepth 3 \\( -name '*rpm-node*' -o -name '*rpm_node*' \\)
grep -s rpm-node /etc/passwd /etc/group /etc/subuid || true
"""


def machine(**changes: Any) -> MachineSetup:
    return replace(MachineSetup(public_key=KEY), **changes)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_every_shell_understands_the_script(shell: str, runtime: str) -> None:
    script = script_for(machine(runtime=runtime), installation=INSTALLATION)
    command = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]

    done = subprocess.run(command, input=script, text=True, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_script_fetches_nothing_by_itself() -> None:
    script = script_for(machine(), installation=INSTALLATION)

    assert "://" not in script
    assert not [word for word in ("curl", "wget", "pip ", "git ") if word in script]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"account": "root"}, "account", id="root"),
        pytest.param({"account": "a b; rm -rf /"}, "account", id="no name"),
        pytest.param({"folder": "/var/lib/$(id)"}, "folder", id="no folder"),
        pytest.param({"public_key": "-----BEGIN OPENSSH PRIVATE KEY-----"}, "public", id="private"),
        pytest.param({"public_key": f"{KEY}\n{KEY}"}, "public", id="two keys"),
        pytest.param({"public_key": 'ssh-ed25519 AAAA"'}, "public", id="a quote"),
        pytest.param({"nvidia_source": "deb x\ndeb y"}, "one line", id="two lines"),
        pytest.param({"allowed": ("mount:/a/../b",)}, "mount", id="no plain mount"),
        pytest.param({"allowed": ("capability:SYS_ADMIN",)}, "names none of", id="a capability"),
    ],
)
def test_what_would_not_be_safe_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        script_for(machine(**change), installation=INSTALLATION)


@pytest.mark.parametrize(
    ("allowed", "want"),
    [
        pytest.param((), ["podman"], id="containers alone"),
        pytest.param(("process",), ["podman", "process"], id="processes too"),
    ],
)
def test_tasks_without_a_container_are_allowed_only_where_that_is_asked_for(
    allowed: tuple[str, ...], want: list[str]
) -> None:
    script = script_for(machine(allowed=allowed), installation=INSTALLATION)

    found = re.search(r"^ALLOWED='(.*?)'$", script, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["runtimes"] == want


@pytest.mark.django_db
def test_the_command_prints_or_writes_the_script(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(KEY + "\n")
    printed = StringIO()

    call_command("node", "prepare", f"--public-key={tmp_path / 'key.pub'}", stdout=printed)
    call_command(
        "node", "prepare", f"--public-key={tmp_path / 'key.pub'}", f"--out={tmp_path / 'out'}"
    )

    script = printed.getvalue()
    assert script.startswith("#!/bin/sh\n")
    assert Installation.objects.get().key in script
    assert "alice@home" not in script
    assert (tmp_path / "out").read_text() == script
    with pytest.raises(CommandError, match="exists"):
        call_command(
            "node", "prepare", f"--public-key={tmp_path / 'key.pub'}", f"--out={tmp_path / 'out'}"
        )
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("node", "prepare", f"--public-key={tmp_path / 'none'}")


def entering(
    folder: Path, programs: dict[str, str], *, public_key: str, port: int, kinds: str = "ed25519"
) -> list[str]:
    """The command that enters a machine with the script and these programs, and runs `drive`."""
    given, work = folder / "given", folder / "work"
    given.mkdir()
    work.mkdir()
    include = "Include /etc/ssh/sshd_config.d/*.conf\n"
    for name, content in {
        "prepare": script_for(machine(public_key=public_key), installation=INSTALLATION),
        "apt-get": APT,
        "apt-cache": APT,
        "sshd_config": include + SSHD.format(port=port),
        **programs,
    }.items():
        (given / name).write_text(content)
        (given / name).chmod(0o755)
    enter = ENTER.format(work=work, given=given, kinds=kinds)
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter]


@contextmanager
def prepared(folder: Path, *, kinds: str = "rsa ecdsa ed25519") -> Iterator[tuple[int, Path]]:
    """A machine on which the script ran twice, with its sshd on the port; and its words.

    `kinds` are those of its host keys.
    """
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True
    )
    public_key = (folder / "key.pub").read_text()
    port = ports.free_port()
    enter = entering(folder, {"drive": DRIVE}, public_key=public_key, port=port, kinds=kinds)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            enter,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        # The script runs twice before: a busy machine takes its time for that.
        ports.wait_for_server(
            process,
            lambda: ports.accepts(port),
            what="the prepared machine",
            timeout_s=PREPARED_WITHIN_S,
        )
        yield port, log
    except ports.ServerDidNotStart:
        pytest.fail(log.read_text(), pytrace=False)
    finally:
        process.kill()
        process.wait()


def can_overlay(folder: Path) -> bool:
    """Whether this machine lets root make such a machine."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    script = (
        f"mount -t tmpfs none {folder} && cd {folder} && mkdir u w r && "
        f"mount -t overlay o -o lowerdir=/,upperdir={folder}/u,workdir={folder}/w {folder}/r"
    )
    probe = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


def test_a_prepared_machine_lets_the_key_run_the_helper_and_nothing_else(tmp_path: Path) -> None:
    need("sshd")
    (tmp_path / "probe").mkdir()
    if not can_overlay(tmp_path / "probe"):
        pytest.skip("needs root and overlay file systems")
    home = f"/var/lib/rpm-node/{INSTALLATION}"

    with prepared(tmp_path) as (port, log):
        words = log.read_text().partition("READY")[0]
        place = SshNode(
            "127.0.0.1",
            port,
            "rpm-node",
            (tmp_path / "key").read_text(),
            ssh_host_key("127.0.0.1", port),
            home="",
        )
        client = NodeClient(SshTransport(place), INSTALLATION)
        # The gate tells where.
        installed = client.install()
        transport = SshTransport(replace(place, home=installed.home))
        node = TestedNode(NodeClient(transport, INSTALLATION))
        outcome = node.probe()
        process = node.launch("true")
        with pytest.raises(ExchangeFailed, match="runs the helper of RPM and nothing else"):
            SshTransport(replace(place, home="/tmp")).exchange(b"", timeout_s=scale_timeout(20))
        with pytest.raises(ExchangeFailed, match="nothing else"):
            transport._run("id; python3 -", b"", scale_timeout(20))  # what an intruder would send
        with pytest.raises(ExchangeFailed, match="nothing else"):
            transport._run(f"python3 -ES {home}/helper; id", b"", scale_timeout(20))  # likewise
        transport.close()
        client.transport.close()

    assert outcome.answer.account != 0
    assert isinstance(process, NodeRefusal)
    assert "/etc/rpm-node/allowlist.json" in process.detail
    assert installed.home == home
    for line in (
        "there is an account rpm-node already, with the home /opt/taken",
        "/var/lib/rpm-node belongs to daemon: make this script with --account daemon",
        "passwordauthentication no",
        "permittty no",
        "maxsessions 16",
        "authorizedkeysfile /etc/ssh/rpm_node_keys",
        "::/var/lib/rpm-node:/bin/sh",
        "drwx------ rpm-node /var/lib/rpm-node",
        'restrict,command="/usr/local/lib/rpm-node/gate" ssh-ed25519',
    ):
        assert line in words, words


@pytest.mark.parametrize("kinds", ["rsa ecdsa ed25519", "rsa ecdsa", "rsa"])
def test_the_printed_fingerprint_is_that_of_the_key_that_a_connection_is_shown(
    tmp_path: Path, kinds: str
) -> None:
    need("sshd")
    (tmp_path / "probe").mkdir()
    if not can_overlay(tmp_path / "probe"):
        pytest.skip("needs root and overlay file systems")

    with prepared(tmp_path, kinds=kinds) as (port, log):
        shown = ssh_host_key("127.0.0.1", port)

    printed = re.findall(r"SHA256:[A-Za-z0-9+/]{43}", log.read_text())
    assert printed == [shown.fingerprint]


@pytest.mark.parametrize("survives", [False, True])
def test_the_documented_removal_ends_what_runs_or_stops_with_an_error(
    tmp_path: Path, *, survives: bool
) -> None:
    need("sshd")
    (tmp_path / "probe").mkdir()
    if not can_overlay(tmp_path / "probe"):
        pytest.skip("needs root and overlay file systems")
    documented = [
        one.text for one in blocks(DOCUMENT.with_name("operating.md")) if one.heading == REMOVAL
    ]
    programs = {
        "drive": LEAVE.format(before="touch /survives" if survives else ""),
        "remove": documented[0],
        "systemctl": SYSTEMCTL,
        "loginctl": SYSTEMCTL,
    }
    enter = entering(tmp_path, programs, public_key=KEY, port=ports.free_port())

    done = subprocess.run(
        enter,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PREPARED_WITHIN_S,
    )

    status, *left = done.stdout.partition("REMOVING\n")[2].splitlines()
    words = done.stdout + done.stderr
    assert done.returncode == 0, words
    # The key does not log in any more, whatever else happened.
    assert "/etc/ssh/rpm_node_keys" not in left, words
    if survives:
        assert status != "STATUS 0", words
        assert "/usr/local/lib/rpm-node" in left, words
    else:
        assert (status, left) == ("STATUS 0", []), words
