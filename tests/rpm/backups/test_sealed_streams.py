"""Sealed streams: what goes in comes out, or it is refused."""

import io
from collections.abc import Callable
from typing import cast

import pytest

from rpm.backups import sealed_streams
from rpm.backups.errors import BackupFailed
from rpm.backups.sealed_streams import (
    CHUNK_BYTES,
    TAG_BYTES,
    SealingWriter,
    UnsealingReader,
    is_sealed,
)

HEAD = len(sealed_streams.MAGIC) + sealed_streams.SALT_BYTES + sealed_streams.PREFIX_BYTES
SEALED_CHUNK = CHUNK_BYTES + TAG_BYTES


@pytest.fixture(autouse=True)
def cheap_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second for every key adds up."""
    monkeypatch.setattr(sealed_streams, "SCRYPT_N", 2**10)


def sealed(content: bytes, passphrase: str = "a long passphrase") -> bytes:
    target = io.BytesIO()
    writer = SealingWriter(target, passphrase)
    for start in range(0, len(content), 700_001):
        writer.write(content[start : start + 700_001])
    writer.close()
    return target.getvalue()


def unsealed(content: bytes, passphrase: str = "a long passphrase") -> bytes:
    reader = UnsealingReader(io.BytesIO(content), passphrase)
    return io.BufferedReader(cast(io.RawIOBase, reader)).read()


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3_000_000])
def test_what_was_sealed_comes_out_again(size: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)

    closed = sealed(content)

    assert is_sealed(io.BytesIO(closed))
    assert unsealed(closed) == content
    assert len(content) < 32 or content[:32] not in closed


def test_two_seals_of_the_same_content_differ() -> None:
    assert sealed(b"content") != sealed(b"content")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda closed: closed[:-1], id="the last byte is cut"),
        pytest.param(lambda closed: closed[: HEAD + SEALED_CHUNK], id="the last chunks are cut"),
        pytest.param(lambda closed: closed[:HEAD], id="every chunk is cut"),
        pytest.param(lambda closed: closed + b"x", id="something stands behind"),
        pytest.param(
            lambda closed: (
                closed[:HEAD]
                + closed[HEAD + SEALED_CHUNK : HEAD + 2 * SEALED_CHUNK]
                + closed[HEAD : HEAD + SEALED_CHUNK]
                + closed[HEAD + 2 * SEALED_CHUNK :]
            ),
            id="two chunks changed places",
        ),
        pytest.param(
            lambda closed: closed[:HEAD] + closed[HEAD + SEALED_CHUNK :], id="a chunk is missing"
        ),
        pytest.param(
            lambda closed: closed[: HEAD + 5] + bytes([closed[HEAD + 5] ^ 1]) + closed[HEAD + 6 :],
            id="a bit is turned",
        ),
    ],
)
def test_a_changed_stream_is_refused(change: Callable[[bytes], bytes]) -> None:
    closed = sealed(b"secret" * 500_000)

    with pytest.raises(BackupFailed):
        unsealed(change(closed))


def test_another_passphrase_opens_nothing() -> None:
    with pytest.raises(BackupFailed, match="passphrase"):
        unsealed(sealed(b"content"), "another passphrase")
