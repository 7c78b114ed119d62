"""Which images a pool allows."""

import pytest

from apps.core.containers import is_image
from apps.execution.node import checks
from apps.execution.node.errors import Refusal
from apps.policies.images import is_allowed, is_pattern, registry_of
from tests.execution.specifications.generator import IMAGES

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
        pytest.param(["a.b/c"], ["a.b/c"], ["aXb/c"], id="a dot is a dot"),
    ],
)
def test_patterns(patterns: list[str], allowed: list[str], refused: list[str]) -> None:
    assert [image for image in allowed if not is_allowed(image, patterns)] == []
    assert [image for image in refused if is_allowed(image, patterns)] == []


@pytest.mark.parametrize(
    "pattern", ["registry.example*/a", "*/a", "a*", "", "-v", "a b/c", "[ab]/c"]
)
def test_a_star_never_stands_for_a_registry(pattern: str) -> None:
    assert not is_pattern(pattern)


@pytest.mark.parametrize("image", IMAGES)
def test_both_sides_know_the_same_names(image: str) -> None:
    try:
        checks.image({"image": image})
        is_known_to_node = True
    except Refusal:
        is_known_to_node = False

    assert is_image(image) == is_known_to_node


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("busybox", "docker.io"),
        ("team/train:1", "docker.io"),
        ("localhost/a", "localhost"),
        ("Registry.Example.org/a", "registry.example.org"),
        ("registry:5000/a:1", "registry:5000"),
    ],
)
def test_the_registry_of_an_image(image: str, want: str) -> None:
    assert registry_of(image) == want
