"""Finds keys that are easy to guess; pure, because it runs before settings."""

import base64
import binascii
import itertools
import math
from collections import Counter

SECRET_SIGNS = 32
# Of a random text: 32 hexadecimal characters have about 110, 48 of base64 about 220.
BITS = 85
# What examples, templates and documents put in the place of a key.
KNOWN = (
    *("changeme", "change-me", "change_me", "changethis", "replaceme", "replace-me", "replace_me"),
    *("insecure", "password", "default", "example", "placeholder", "yoursecret", "your-secret"),
    *("your_secret", "secretkey", "secret-key", "secret_key", "mysecret", "supersecret", "letmein"),
    *("qwerty", "0123456789", "1234567890", "abcdefghij", "development", "notasecret"),
)


def secret_weakness(secret: str) -> str:
    """What is wrong with a secret that signs; empty where nothing is."""
    if len(secret) < SECRET_SIGNS:
        return f"is too short for a secret: use {SECRET_SIGNS} characters or more"
    plain = secret.lower()
    known = next((word for word in KNOWN if word in plain), "")
    if known:
        return f"holds the word {known!r}, as keys of examples do: use a random one"
    if _bits(secret) < BITS or _period(secret) <= len(secret) // 2 or _is_sequence(secret.encode()):
        return "is too regular to be random: use a random one"
    return ""


def key_weakness(key: str) -> str:
    """What is wrong with a key of the key ring (32 bytes in base64); empty where nothing is."""
    try:
        raw = base64.urlsafe_b64decode(key)
    except (binascii.Error, ValueError):
        return "is no key: 32 bytes in base64, as `manage.py keys new` prints them"
    if len(raw) != 32:
        return f"has {len(raw)} bytes: a key has 32, as `manage.py keys new` prints it"
    # Of 32 random bytes about 30 differ; fewer than 20 never come by chance.
    if len(set(raw)) < 20 or _is_sequence(raw) or raw.isascii():
        return "is too regular to be random: use one that `manage.py keys new` prints"
    return ""


def _bits(text: str) -> float:
    """Shannon entropy of the characters, for the whole text."""
    counts = Counter(text).values()
    return -sum(count * math.log2(count / len(text)) for count in counts)


def _period(text: str) -> int:
    """After how many characters it repeats itself; its length where it does not."""
    return (text + text).find(text, 1)


def _is_sequence(raw: bytes) -> bool:
    """Whether each byte is as far from the one before as the next."""
    return len({(after - before) % 256 for before, after in itertools.pairwise(raw)}) <= 2
