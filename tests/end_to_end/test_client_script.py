"""`rpmctl` from its wheel against a whole installation, whose node runs real containers."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.client.wheels import PACKAGES, wheel_build, wheel_install
from tests.end_to_end.installation import Client, Installation, installed
from tests.services.podman import PodmanStore, root_of_image
from tests.services.sshd import StartSshNode
from tests.services.timeouts import scale_timeout

SCRIPT = Path(__file__).with_name("client_script.sh")
PASSWORD = "correct-horse-battery"
IMAGE = "localhost/rpm-python:1"
# Of the array: 100 elements take minutes, most of which is podman's.
LAST = int(os.environ.get("RPM_TEST_LAST_ELEMENT", "19"))


def test_the_script_of_a_user_with_only_the_wheel_runs_to_its_end(
    tmp_path: Path,
    database_url: str,
    shared: Path,
    podman: PodmanStore,
    start_ssh_node: StartSshNode,
) -> None:
    programs = wheel_install(wheel_build(tmp_path), tmp_path / "venv")
    made = podman.run("import", "-", IMAGE, content=image_with_python())
    assert made.returncode == 0, made.stderr
    with installed(tmp_path, database_url) as installation:
        root = installation.person("rita", "Admins", password=PASSWORD)
        alice = installation.person("alice", "team", password=PASSWORD)
        configure(root, shared)
        add_node(installation, podman, start_ssh_node, shared)

        done = play(installation, alice, root, programs=programs, shared=shared)

    assert done.returncode == 0, done.stdout + done.stderr[-8000:]


def play(
    installation: Installation, alice: Client, root: Client, *, programs: Path, shared: Path
) -> subprocess.CompletedProcess[str]:
    """Run the script with its own home and folder, and the programs of the environment first."""
    folder = installation.folder / "play"
    folder.mkdir()
    # The place of cloudpickle, which is no package of the tests: functions that can be imported.
    (folder / "cloudpickle.py").write_text("from pickle import dumps\n")
    return subprocess.run(
        ["/bin/sh", SCRIPT],
        cwd=folder,
        env={
            "PATH": f"{programs}:{os.defpath}",
            "PYTHONPATH": PACKAGES,
            "HOME": str(folder),
            "URL": installation.address,
            "KEY": alice.key,
            "SECRET": alice.secret,
            "ROOT_KEY": root.key,
            "ROOT_SECRET": root.secret,
            "IMAGE": IMAGE,
            "PYTHON": f"/volumes/python/bin/{python_name()}",
            "LAST": str(LAST),
            "SHARED": str(shared),
        },
        capture_output=True,
        text=True,
        timeout=scale_timeout(300 + 10 * LAST),
        check=False,
    )


def python_name() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def image_with_python() -> bytes:
    """The busybox image, whose libraries are those of the machine: two volumes bring Python."""
    content = io.BytesIO(root_of_image())
    with tarfile.open(fileobj=content, mode="a") as root:
        for name in ("lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"/volumes/system/{name}"
            root.addfile(link)
    return content.getvalue()


def configure(root: Client, shared: Path) -> None:
    """One pool, profile and policy, and the volumes."""
    places = {"shared": str(shared), "python": sys.base_prefix, "system": "/usr"}
    for name, path in places.items():
        is_read_only = name != "shared"
        volume = {"name": name, "path": path, "is_read_only": is_read_only, "scope": "everywhere"}
        root.post("/volumes/", volume)
    version = root.http.get("/configuration/draft/").headers["ETag"]
    profile = {"name": "Work", "request": 1, "pools": [{"pool": "Box"}], "volumes": [*places]}
    document = {"pools": [{"name": "Box", "capacity": 8}], "profiles": [profile]}
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "For the script."})
    policy = root.post("/policies/", {"name": "Team", "group": "team", "reserved": 8})
    root.post(f"/policies/{policy['id']}/profiles/", {"profile": "Work"})


def add_node(
    installation: Installation, podman: PodmanStore, start: StartSshNode, shared: Path
) -> None:
    node = start()
    mounts = [str(shared), sys.base_prefix, "/usr"]
    allowed = {"runtimes": ["podman"], "mounts": mounts, "capabilities": [], "devices": []}
    node.allowlist.write_text(json.dumps({**allowed, "host_network": False, "root": False}))
    installation.manage(
        *("node", "add", "box", "--pool", "Box", "--address", node.address),
        *("--port", str(node.port), "--user", node.user, "--key", str(node.key_path)),
        *("--fingerprint", node.host_key.fingerprint, "--runtime", "podman"),
        *("--state-dir", node.home, "--simulated-gpus", "8"),
        *[f"--env={key}={value}" for key, value in podman.environment.items()],
    )
