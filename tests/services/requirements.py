"""Programs that a test needs, and the result where one is missing.

`need("podman")` skips with a sentence that names what to install. Where the tests run with
RPM_TEST_STRICT=1 on a machine that could have installed it (root, with apt), it fails instead:
there a skipped suite is a fault of the set-up.
"""

import os

import pytest

from tools.packages import can_install, find_program

# Name of the need -> programs of which each must be there (alternatives by a bar).
PROGRAMS: dict[str, tuple[str, ...]] = {
    "busybox": ("busybox",),
    # The one without windows of its own takes a third less of the processor.
    "chromium": ("chromium-headless-shell|chromium|chromium-browser|google-chrome",),
    "docker": ("docker",),
    "network namespaces": ("ip",),
    "podman": ("podman", "runc"),
    "promtool": ("promtool",),
    "postgres": ("initdb", "postgres"),
    "redis": ("redis-server",),
    "sshd": ("sshd", "ssh-keygen"),
}
# What `make test` does not install, so that its absence is never a fault.
OPTIONAL = frozenset({"docker", "promtool"})


def need(name: str, *, because: str | None = None) -> str:
    """Make sure that the machine has what `name` stands for, or end the test here.

    Args:
        name: a key of PROGRAMS, or any other thing (then `because` says what is wrong with it).
        because: why it cannot be used although it is there, in plain words; None when it can.

    Returns:
        The path of its first program; empty for a thing without programs.
    """
    missing = missing_programs(name)
    if missing:
        reason = f"needs {name}: {', '.join(missing)} not found"
        if is_strict() and name not in OPTIONAL and can_install():
            pytest.fail(f"{reason}, and this machine could have installed it", pytrace=False)
        pytest.skip(reason)
    if because is not None:
        pytest.skip(f"needs {name}: {because}")
    programs = PROGRAMS.get(name, ())
    return _find(programs[0]) or "" if programs else ""


def missing_programs(name: str) -> list[str]:
    """Programs of this need that are not on the machine."""
    return [program for program in PROGRAMS.get(name, ()) if _find(program) is None]


def is_strict() -> bool:
    """Whether this run counts a suite that it could have run as failed when it is skipped."""
    return os.environ.get("RPM_TEST_STRICT") == "1"


def _find(alternatives: str) -> str | None:
    return next(filter(None, map(find_program, alternatives.split("|"))), None)
