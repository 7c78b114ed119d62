"""Which images a pool allows."""

import pytest

from apps.core.images import ImageName
from apps.policies.images import is_allowed, is_pattern

REGISTRY = "registry.example.org"
DIGEST = "@sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("patterns", "allowed", "refused"),
    [
        pytest.param([], ["a", f"{REGISTRY}/a:1"], [], id="no list, no limit"),
        pytest.param(["*"], ["a", f"{REGISTRY}/a:1"], [], id="everything"),
        pytest.param(
            [f"{REGISTRY}/team/*"],
            [f"{REGISTRY}/team/a", f"{REGISTRY}/team/a/b:1", f"{REGISTRY}/team/a{DIGEST}"],
            [f"{REGISTRY}/teams/a", "team/a", f"other/{REGISTRY}/team/a", f"{REGISTRY}/team"],
            id="all of a folder",
        ),
        pytest.param(
            [f"{REGISTRY}/a"],
            [
                f"{REGISTRY}/a",
                f"{REGISTRY}/a:1",
                f"{REGISTRY}/a:1{DIGEST}",
                f"{REGISTRY}/a{DIGEST}",
            ],
            [f"{REGISTRY}/ab", f"{REGISTRY}/a/b", f"{REGISTRY}:5000/a", f"x{REGISTRY}/a"],
            id="a name with any tag",
        ),
        pytest.param(
            [f"{REGISTRY}/a:1"],
            [f"{REGISTRY}/a:1"],
            # A digest goes before a tag: it could be any image of that name.
            [f"{REGISTRY}/a", f"{REGISTRY}/a:12", f"{REGISTRY}/a:1{DIGEST}"],
            id="one tag",
        ),
        pytest.param(
            [f"{REGISTRY}/a{DIGEST}"],
            [f"{REGISTRY}/a{DIGEST}"],
            [f"{REGISTRY}/a", f"{REGISTRY}/a:1", f"{REGISTRY}/a{DIGEST[:-1]}b"],
            id="one digest",
        ),
        pytest.param(["a.b/c"], ["a.b/c"], ["a-b/c"], id="a dot is a dot"),
        pytest.param(
            ["busybox:1", "team/*"],
            ["busybox:1", "docker.io/library/busybox:1", "index.docker.io/team/a", "team/b:2"],
            ["busybox", f"{REGISTRY}/busybox:1", f"{REGISTRY}/team/a", "localhost/busybox:1"],
            id="names without a host are of Docker Hub",
        ),
        pytest.param(
            [f"{REGISTRY.upper()}/a", f"{REGISTRY}/b:1{DIGEST}"],
            [f"{REGISTRY}/a:1", f"{REGISTRY}/b{DIGEST}", f"{REGISTRY}/b:2{DIGEST}"],
            [f"{REGISTRY}/b:1"],
            id="written otherwise",
        ),
        pytest.param(["docker.io/*"], ["a", "team/a"], ["localhost/a"], id="all of Docker Hub"),
    ],
)
def test_patterns(patterns: list[str], allowed: list[str], refused: list[str]) -> None:
    assert [name for name in allowed if not is_allowed(ImageName.parse(name), patterns)] == []
    assert [name for name in refused if is_allowed(ImageName.parse(name), patterns)] == []


@pytest.mark.parametrize(
    "pattern", ["registry.example*/a", "*/a", "a*", "", "-v", "a b/c", "[ab]/c"]
)
def test_a_star_never_stands_for_a_registry(pattern: str) -> None:
    assert not is_pattern(pattern)
