"""Names of images, each qualified once so that every reader takes it for the same image; pure.

The runtimes take a short name for any image of the node that ends so, and know prefixes for files
and for their own store. So a name is stored, compared and sent in full only; the node accepts
nothing else (`apps/execution/node/images.py`).
"""

import re
from dataclasses import dataclass

from apps.core.errors import BadInput

IMAGE_LENGTH = 500
DEFAULT_REGISTRY = "docker.io"
# Other hosts under which the runtimes know the same registry.
REGISTRY_ALIASES = {"index.docker.io": DEFAULT_REGISTRY}

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_REGISTRY = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?")
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_REST = re.compile(
    rf"(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
# What the runtimes read before a colon otherwise than as a name.
_TRANSPORTS = frozenset(
    {
        "atomic", "containers-storage", "dir", "docker-archive", "docker-daemon", "oci",
        "oci-archive", "ostree", "sha256", "sif", "tarball",
    }
)  # fmt: skip
_NUMBER = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ImageName:
    """An image in full: `registry/repository:tag`, or `registry/repository@digest`."""

    registry: str
    repository: str
    tag: str
    digest: str

    @classmethod
    def parse(cls, name: str, *, field: str = "image") -> "ImageName":
        """A name as people write it, `[host[:port]/]path[:tag][@sha256:digest]`.

        Without a host it is Docker Hub's, without tag and digest the tag is `latest`; next to a
        digest a tag says nothing.

        Raises:
            BadInput: it is none, but a file, a number or a transport.
        """
        registry, rest = split_registry(name)
        found = _REST.fullmatch(rest)
        is_other = name.partition(":")[0] in _TRANSPORTS or bool(_NUMBER.fullmatch(name))
        if found and not is_other and _REGISTRY.fullmatch(registry):
            digest = found["digest"] or ""
            tag = "" if digest else found["tag"] or "latest"
            image = cls(registry, found["repository"], tag, digest)
            if len(str(image)) <= IMAGE_LENGTH:
                return image
        problem = "must be a name such as registry.example.org/team/train:1.0"
        raise BadInput(f"{field} {problem}.", fields={field: problem})

    def __str__(self) -> str:
        version = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.registry}/{self.repository}{version}"


def image_problems(name: str, *, field: str = "image") -> dict[str, str]:
    """What is wrong with the name of an image; empty is none."""
    try:
        if name:
            ImageName.parse(name, field=field)
    except BadInput as error:
        return dict(error.fields)
    return {}


def split_registry(name: str) -> tuple[str, str]:
    """The registry of a name or of a pattern of names, and the part after it."""
    registry, slash, rest = name.partition("/")
    is_host = slash and (registry == "localhost" or "." in registry or ":" in registry)
    if not is_host:
        registry, rest = DEFAULT_REGISTRY, name
    registry = REGISTRY_ALIASES.get(registry.lower(), registry.lower())
    if registry == DEFAULT_REGISTRY and not {"/", "*"} & set(rest):
        rest = f"library/{rest}"
    return registry, rest
