"""A password for a registry on its way to a runtime: in memory, and only while it fetches.

<private place>/logins/<pull>/config.json     read by podman as authfile, by docker as its settings

Never on a disk, in an argument or in a variable. A helper that is killed before it removes the file
leaves that to the next exchange, which knows by the lock of the pull that it is unused.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from typing import Any, Iterator, NamedTuple

from apps.execution.node import files, private_files, request_fields, task_files

FILE = "config.json"
DOCKER_HUB = "docker.io"
# The key under which docker itself keeps what is for its hub.
DOCKER_HUB_KEY = "https://index.docker.io/v1/"
LONGEST = 16_384


class PullLogin(NamedTuple):
    """User and password at one registry. `revision` tells one state of them from another."""

    registry: str
    username: str
    password: str
    revision: str

    def __repr__(self) -> str:
        return "Login(%r, revision=%r)" % (self.registry, self.revision)

    @property
    def basic(self) -> str:
        """As it is sent to the registry."""
        return base64.b64encode(("%s:%s" % (self.username, self.password)).encode()).decode()


def login_of(request: dict[str, Any]) -> PullLogin | None:
    """The login in a request. No refusal repeats what stood there."""
    value = request.get("login")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise request_fields.refuse("login", "not an object")
    return PullLogin(*[_text(value, name) for name in PullLogin._fields])


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    is_fine = isinstance(text, str) and 0 < len(text) <= LONGEST and text.isprintable()
    if not is_fine or (name == "username" and ":" in str(text)):
        raise request_fields.refuse("login.%s" % name, "cannot be used")
    return str(text)


@contextlib.contextmanager
def login_file(home: str, config: dict[str, Any], pull: str, login: PullLogin) -> Iterator[str]:
    """A folder in memory with the file that runtimes read; gone afterwards, whatever happens.

    Raises:
        OSError: this machine has no file system in memory.
    """
    folder = os.path.join(_logins_folder(home, config), pull)
    private_files.ensure_private_root(home, config)
    task_files.ensure_folder(os.path.dirname(folder), 0o700)
    task_files.remove(folder)
    task_files.ensure_folder(folder, 0o700)
    try:
        with task_files.opened_folder(folder) as made:
            task_files.make_file(made, FILE, _content(login))
        yield folder
    finally:
        with contextlib.suppress(OSError):
            task_files.remove(folder)


def remove_leftovers(home: str, config: dict[str, Any]) -> None:
    """Remove what a pull left that was killed."""
    try:
        root = _logins_folder(home, config)
        pulls = task_files.names_in(root)
    except OSError:
        # Nothing was ever handed over here, or could be.
        return
    for pull in pulls:
        if not files.is_locked(os.path.join(home, "pulls", pull, "lock")):
            with contextlib.suppress(OSError):
                task_files.remove(os.path.join(root, pull))


def masked(words: bytes, login: PullLogin) -> bytes:
    """What a runtime or a registry says, without the password in it."""
    for secret in (login.password, login.basic):
        words = words.replace(secret.encode(), b"********")
    return words


def _content(login: PullLogin) -> bytes:
    names = [login.registry] + ([DOCKER_HUB_KEY] if login.registry == DOCKER_HUB else [])
    return json.dumps({"auths": {name: {"auth": login.basic} for name in names}}).encode()


def _logins_folder(home: str, config: dict[str, Any]) -> str:
    return os.path.join(private_files.private_root(home, config), "logins")
