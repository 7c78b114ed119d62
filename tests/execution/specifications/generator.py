"""Launch specifications as a hostile or careless person would write them, from a seed."""

import random
from collections.abc import Callable
from typing import Any

# An argument may have 128 KiB with its NUL, a variable 60 KiB.
SIZES = (0, 1, 4095, 4096, 60 * 1024, 60 * 1024 + 1, 128 * 1024 - 1, 128 * 1024, 1024 * 1024)
PIECES = (
    "train", "a b", "  ", "=", "ü", "日本語", "\u202egnp", "\u2028", "\ufeff", "e\u0301", "🜚",
    "\U0010ffff", "'", '"', "\\", "\\\\", "''", '"$@"', "\t", "#", "%s", "%00", "*", "?", "[a-z]",
    "~", "!", "{1,2}", "$HOME", "${IFS}", "$(touch {canary})", "`touch {canary}`",
    "; touch {canary}", "| touch {canary}", "&& touch {canary} &", "' ; touch {canary} ; '",
    '" ; touch {canary} ; "', "> {canary}", "$(touch${IFS}{canary})", "\ntouch {canary}\n",
    "\r\n", "\n", "\r", "\x1b[31m", "\x7f", "\x01", "--", "-", "--privileged", "-v/:/host",
    "--volume=/:/host", "--env-file=/etc/shadow", "-it", "--rm", ",readonly", ",",
    ",source=/,destination=/host", ":", ":rw", ";", "..", "../..", "/", "//", "/.", "\0", "a\0b",
    "\ud800", "\udc80", "null", "${RPM_TASK_ID}", "<(id)", "0", "localhost",
)  # fmt: skip
IMAGES = (
    "localhost/rpm-test:1", "busybox", "registry.example.org:5000/team/train", "a/b:v1.0_x-y",
    "docker.io/library/busybox:1", "docker.io/busybox:1", "index.docker.io/a/b:1", "A.b/c:1",
    "a_b.c/d:1", "containers-storage:0a12", "sha256:0a12", "a.b/c:1", "a.b/c", "LOCALHOST/a:1",
    "registry.example.org/team/train@sha256:" + "0a" * 32, "a:1@sha256:" + "f" * 64, "", ":1",
    "a:", "a@", "a@sha256:12", "a//b", "/a", "a/", "A/b", "a:1:2", "a@sha256:" + "F" * 64,
    "--privileged", "-v/:/host", "a b", "a,b", "a\nb", "a\0b", "docker://a",
    "oci-archive:/etc/shadow", "../a", "a/../b", "docker-archive:/tmp/x.tar", "dir:/etc",
    "a$(touch {canary})", "ü", "\ud800", "containers-storage:[overlay@/x]a", "a" * 256,
    "a:" + "1" * 129, "sha256:" + "0" * 64, "0" * 64,
)  # fmt: skip
NAMES = (
    "A", "KEY_FILE", "_", "a1", "PATH", "HOME", "HOSTNAME", "LD_PRELOAD",
    "NVIDIA_VISIBLE_DEVICES", "RPM_MEMBER", "CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES", "1A", "A-B",
    "A B", "A=B", "", "A\n", "A*", "*", "ü", "A\0",
)  # fmt: skip
SECRET_NAMES = (
    "KEY", "_x", "TOKEN_1", "N" * 40, "../x", "a/b", "KEY,mode=0777", "-x", "A\n", "", "ü",
)  # fmt: skip
FOLDERS = (
    "/", "/srv", "/srv/a b", "/ä/日", "/a-b/--c", "/~", "/$(touch {canary})",
    "/`touch {canary}`", "/a;b", "/a'b", "work", "-v", "", "/a,b", "/a,readonly", "/a:b", "/a\\b",
    '/a"b', "/a\nb", "/a\0b", "/\ud800", "/../etc", "/a/./b", "//etc", "/a//b", "/a/", "/proc",
    "/proc/sys", "/sys", "/dev", "/run/secrets", "/run/secrets/KEY", "/" + "x" * 300,
    "/" + "ü" * 1023, "/" + "x" * 1024, "/*", "/{1,2}", "/%s",
)  # fmt: skip
USERS = (
    1, 1000, 12_345, 65_534, 2**31, 2**32 - 2, None, -1, 0, 2**32 - 1, 2**40, True, "1000", "0:0",
    1.0,
)  # fmt: skip
CDI = (
    "", "nvidia.com/gpu=GPU-1", "nvidia.com/gpu=0:1", "/dev/kmsg", "/dev/sda:/dev/sda:rwm",
    "a/b=c:rwm,d", "vendor.example/class=one two", "-x", "nvidia.com/gpu=",
    "nvidia.com/gpu=all\n", "$(touch {canary})",
)  # fmt: skip
NETWORKS = ("default", "none", "host", "container:x", "ns:/proc/1/ns/net", "", "--net=host")
UUIDS = ("GPU-1", "MIG-2/3", "a,b", "", "GPU 1", "x\ny", "all", "$(touch {canary})")


def plain(*arguments: str) -> dict[str, Any]:
    """A launch of these arguments that nothing else speaks against."""
    return {
        "image": "localhost/rpm-test:1",
        "command": ["run", *arguments],
        "environment": {},
        "uid": 1000,
        "gid": 1000,
    }


class Generator:
    """Specifications one after the other; the same seed and canary give the same ones."""

    def __init__(self, seed: int, *, canary: str) -> None:
        self._random = random.Random(seed)
        self._canary = canary

    def fields(self) -> dict[str, Any]:
        """What a launch request asks for next to its member, its moment and its runtime.

        Most fields are plain, so that not everything is refused for one of many reasons.
        """
        oddly = self._random.choice
        fields: dict[str, Any] = {
            **plain(*self._texts(most=6)),
            "environment": {f"V{index}": self.line() for index in range(self._random.randrange(4))},
        }
        makers: dict[str, Callable[[], Any]] = {
            "image": lambda: self._filled(oddly(IMAGES)),
            "command": lambda: self._texts(most=30),
            "environment": self._environment,
            "secrets": self._secrets,
            "working_dir": self.folder,
            "volumes": self._volumes,
            "devices": self._devices,
            "uid": lambda: oddly(USERS),
            "gid": lambda: oddly(USERS),
            "cpu_milli": lambda: oddly((0, 1, 999, 2500, -1, 10**8, 1.5, "1", None)),
            "memory_mb": lambda: oddly((0, 64, 10**6, -1, 2**40, "64m", "64,--privileged")),
            "network": lambda: oddly(NETWORKS),
            "read_only": lambda: oddly((True, False, "no", 1, None)),
        }  # fmt: skip
        for name in self._random.sample(sorted(makers), self._random.choice((0, 1, 1, 2))):
            fields[name] = makers[name]()
        return fields

    def text(self) -> str:
        """Any text: pieces put together, seldom a very long one."""
        if self._random.random() < 0.01:
            return self._long()
        count = self._random.choice((0, 1, 1, 2, 3, 5))
        return "".join(self._filled(self._random.choice(PIECES)) for _ in range(count))

    def line(self) -> str:
        """A text that a variable can hold, as a rule."""
        text = self.text()
        if self._random.random() < 0.04:
            return text
        return "".join(sign for sign in text if sign not in "\n\r\0" and sign.isascii())

    def folder(self) -> str:
        """A path, most often one that will not do."""
        return self._filled(self._random.choice(FOLDERS))

    def _texts(self, *, most: int) -> list[str]:
        texts = [self.text() for _ in range(self._random.randrange(most))]
        # Half of what a kernel or an encoding cannot carry is enough to refuse the whole list.
        if self._random.random() < 0.9:
            texts = [text.replace("\0", "").encode("utf-8", "ignore").decode() for text in texts]
        return texts

    def _long(self) -> str:
        size = self._random.choice(SIZES) + self._random.choice((-1, 0, 0, 1))
        sign = self._random.choice(("x", " ", "-", "'", "\\", "ü"))
        return (sign * max(size, 0)).encode()[: max(size, 0)].decode(errors="ignore")

    def _environment(self) -> dict[str, str]:
        if self._random.random() < 0.2:
            return {self._random.choice(NAMES): self.line()}
        return {f"V_{index}": self.line() for index in range(self._random.choice((1, 5, 60)))}

    def _secrets(self) -> dict[str, str]:
        names = self._random.sample(SECRET_NAMES, self._random.choice((1, 1, 2)))
        # A value that stands nowhere else, so that a trace of it is one.
        return {name: f"value-{self._random.getrandbits(64):x}{self.text()}" for name in names}

    def _volumes(self) -> list[dict[str, Any]]:
        volumes = []
        for _ in range(self._random.choice((1, 1, 3))):
            source, target = self.folder(), self.folder()
            is_read_only = self._random.choice((True, False, False, "false"))
            volumes.append({"source": source, "target": target, "read_only": is_read_only})
        return volumes

    def _devices(self) -> list[dict[str, Any]]:
        choice = self._random.choice
        return [
            {"uuid": self._filled(choice(UUIDS)), "cdi": self._filled(choice(CDI))}
            for _ in range(choice((1, 2)))
        ]

    def _filled(self, piece: str) -> str:
        return piece.replace("{canary}", self._canary)
