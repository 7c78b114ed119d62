"""From a node's row to a client."""

from pathlib import Path

import pytest

from apps.execution.connections import client_for
from apps.execution.transport.base import Unreachable
from apps.nodes.models import Node


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "cannot be read", id="missing"),
        pytest.param(b"\xff\xfe\x00", "not a private key", id="not text"),
    ],
)
def test_a_private_key_that_cannot_be_read_makes_its_node_unreachable(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(Unreachable, match=words):
        client_for(Node(name="n", address="a", user="u", key_path=str(path)), installation="abcd")
