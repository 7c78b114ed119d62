"""Encrypts a stream with a passphrase, and decrypts it again.

A key is derived with scrypt. The stream is cut into chunks, each sealed with AES-256-GCM; the
nonce of a chunk holds its number and whether it is the last, so that chunks cannot be dropped,
doubled or put in another order (the STREAM construction of Hoang, Reyhanitabar, Rogaway and
Vizár, 2015).
"""

import io
import os
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from rpm.backups.errors import BackupFailed

MAGIC = b"rpm-backup sealed 1\n"
SALT_BYTES = 16
PREFIX_BYTES = 7
CHUNK_BYTES = 1024 * 1024
TAG_BYTES = 16
# 128 MiB of memory and about half a second for every guess.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**17, 8, 1


class SealingWriter(io.RawIOBase):
    """Writes what it is given to `target`, sealed. Only after `close` is the stream whole."""

    def __init__(self, target: BinaryIO, passphrase: str) -> None:
        salt, self._prefix = os.urandom(SALT_BYTES), os.urandom(PREFIX_BYTES)
        self._cipher = AESGCM(_key(passphrase, salt))
        self._target = target
        self._waiting = bytearray()
        self._number = 0
        target.write(MAGIC + salt + self._prefix)

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]  # whatever is a buffer
        self._waiting += piece
        # One chunk stays behind: the last one is marked, and only `close` knows which that is.
        while len(self._waiting) > CHUNK_BYTES:
            self._seal(bytes(self._waiting[:CHUNK_BYTES]), is_last=False)
            del self._waiting[:CHUNK_BYTES]
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._seal(bytes(self._waiting), is_last=True)
        super().close()

    def _seal(self, chunk: bytes, *, is_last: bool) -> None:
        nonce = _nonce(self._prefix, self._number, is_last=is_last)
        self._target.write(self._cipher.encrypt(nonce, chunk, MAGIC))
        self._number += 1


class UnsealingReader(io.RawIOBase):
    """Reads a sealed stream.

    Raises:
        BackupFailed: the passphrase is another one, or the stream was changed or cut.
    """

    def __init__(self, source: BinaryIO, passphrase: str) -> None:
        head = source.read(len(MAGIC) + SALT_BYTES + PREFIX_BYTES)
        salt, self._prefix = head[len(MAGIC) : -PREFIX_BYTES], head[-PREFIX_BYTES:]
        if not head.startswith(MAGIC) or len(salt) != SALT_BYTES:
            raise BackupFailed("This is no sealed backup.")
        self._cipher = AESGCM(_key(passphrase, salt))
        self._source = source
        self._number = 0
        self._open = b""
        self._next = source.read(CHUNK_BYTES + TAG_BYTES)
        if not self._next:
            raise BackupFailed("The sealed backup is cut: it is empty.")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # whatever is a buffer
        while not self._open and self._next:
            self._open = self._unseal()
        given, self._open = self._open[: len(view)], self._open[len(view) :]
        view[: len(given)] = given
        return len(given)

    def _unseal(self) -> bytes:
        sealed, self._next = self._next, self._source.read(CHUNK_BYTES + TAG_BYTES)
        nonce = _nonce(self._prefix, self._number, is_last=not self._next)
        self._number += 1
        try:
            return self._cipher.decrypt(nonce, sealed, MAGIC)
        except InvalidTag:
            words = "The passphrase is another one, or the file was changed or cut."
            raise BackupFailed(words) from None


def is_sealed(source: BinaryIO) -> bool:
    """Whether the stream, which is left at its beginning, needs a passphrase."""
    head = source.read(len(MAGIC))
    source.seek(0)
    return head == MAGIC


def _key(passphrase: str, salt: bytes) -> bytes:
    scrypt = Scrypt(salt=salt, length=32, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P)
    return scrypt.derive(passphrase.encode())


def _nonce(prefix: bytes, number: int, *, is_last: bool) -> bytes:
    return prefix + number.to_bytes(4, "big") + bytes([is_last])
