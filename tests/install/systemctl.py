#!/usr/bin/python3
"""Stands in for systemctl on a machine without systemd.

Starts what Debian's own scripts start, and the commands of the units of RPM with their account,
variables and folder. Copied onto the machine: standard library only.
"""

import fnmatch
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
RUNNING = Path("/run/units")
STOP_WITHIN_S = 60


def main(verb: str, *words: str) -> int:
    RUNNING.mkdir(exist_ok=True)
    names = [word.removesuffix(".service") for word in words if not word.startswith("-")]
    if verb == "daemon-reload" or (verb in {"enable", "disable"} and "--now" not in words):
        return 0
    for name in names:
        # As systemctl itself: only units that are loaded can be named by a pattern.
        if "*" in name and verb in {"enable", "disable"}:
            sys.exit(f"{verb}: {name} is no name of a unit")
        for one in matching(name):
            act("stop" if verb == "disable" else verb, one)
    return 0


def matching(name: str) -> list[str]:
    if "*" not in name:
        return [name]
    return [path.name for path in RUNNING.iterdir() if fnmatch.fnmatch(path.name, name)]


def act(verb: str, name: str) -> None:
    if Path("/etc/init.d", name).exists():
        word = "start" if verb == "enable" else verb
        subprocess.run(["/etc/init.d/" + name, word], check=True, stdin=subprocess.DEVNULL)
        return
    if name.endswith((".target", ".timer")):
        (UNITS / name).read_text()
        return
    if verb in {"stop", "restart"}:
        stop(name)
    if verb != "stop":
        start(name)


def start(name: str) -> None:
    template, at, instance = name.partition("@")
    found: dict[str, str] = {}
    variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for line in (UNITS / f"{template}{at}.service").read_text().splitlines():
        key, _, value = line.partition("=")
        found[key] = value.replace("%i", instance).replace("%%", "%")
        if key == "Environment":
            variables.update([value.partition("=")[::2]])
    for line in Path(found["EnvironmentFile"]).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            variables.update([line.partition("=")[::2]])
    account = ["setpriv", f"--reuid={found['User']}", f"--regid={found['Group']}", "--init-groups"]
    command = [*account, *shlex.split(found["ExecStart"])]
    with Path("/var/log", f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=found["WorkingDirectory"],
            env=variables,
            umask=int(found["UMask"], 8),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (RUNNING / name).write_text(str(process.pid))


def stop(name: str) -> None:
    path = RUNNING / name
    if not path.exists():
        return
    pid = int(path.read_text())
    until = time.monotonic() + STOP_WITHIN_S
    if is_alive(pid):
        os.kill(pid, signal.SIGTERM)
    while is_alive(pid):
        if time.monotonic() > until:
            sys.exit(f"{name} does not end")
        time.sleep(0.2)
    path.unlink()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
