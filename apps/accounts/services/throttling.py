"""Limits how often a client may send requests, guess a secret, or try a password.

Requests are counted per credential and per address, wrong secrets per address and per key, wrong
passwords per account, per address and for both together. The counts are not in the database: they
are shared by the processes over Redis, and expire after minutes.
"""

import hashlib
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from apps.core.errors import TooMany
from apps.core.origin import one_host
from apps.core.rate_counters import WINDOW_S, RateCounters, RateMeter

# Wrong passwords are forgotten so long after the last one.
FORGET_S: Final = 3600.0
FIRST_WAIT_S: Final = 5.0
# Free attempts, as multiples of `RPM_LOG_IN_TRIES`: many people share an address, and
# an attacker who tries an account from everywhere must not easily keep its owner out.
_PAIR, _ADDRESS, _ACCOUNT = 1, 4, 10

# Refused log-ins with identity providers that are recorded, per address and minute.
_REFUSALS: Final = 30

# Streams that a person may open, per minute: each is a log-in on a node.
STREAMS_A_MINUTE: Final = 120

counters = RateCounters()
meter = RateMeter(counters)


def address_admit(address: str) -> None:
    """Count a request of this address.

    Raises:
        TooMany: it sent too many in this minute.
    """
    limit: int = settings.RPM_REQUESTS_PER_ADDRESS
    wait_s = meter.wait_s(f"address:{one_host(address)}", limit=limit)
    if wait_s:
        raise TooMany(
            f"This address sent more than {limit} requests in a minute.", retry_after_s=wait_s
        )


def provider_step_admit(address: str) -> None:
    """Count a step of a log-in with an identity provider, which anybody may begin.

    Raises:
        TooMany: this address made too many in this minute.
    """
    limit: int = settings.RPM_PROVIDER_STEPS_PER_ADDRESS
    wait_s = meter.wait_s(f"provider-step:{one_host(address)}", limit=limit)
    if wait_s:
        raise TooMany(
            f"Too many log-ins from this address: try again in {_wait_text(wait_s)}.",
            retry_after_s=wait_s,
        )


def credential_admit(ident: str) -> None:
    """Count a request of this credential, or of the session of a person.

    Raises:
        TooMany: it was used too often in this minute.
    """
    limit: int = settings.RPM_REQUESTS_PER_CREDENTIAL
    wait_s = meter.wait_s(f"credential:{ident}", limit=limit)
    if wait_s:
        raise TooMany(f"More than {limit} requests in a minute.", retry_after_s=wait_s)


def stream_admit(person: int) -> None:
    """Count a stream that this person opens.

    Raises:
        TooMany: they opened too many in this minute.
    """
    wait_s = meter.wait_s(f"stream:{person}", limit=STREAMS_A_MINUTE)
    if wait_s:
        raise TooMany(
            f"You opened more than {STREAMS_A_MINUTE} streams in a minute.", retry_after_s=wait_s
        )


def guesser_check(address: str) -> None:
    """Refuse an address that guessed too often, whatever it presents.

    Raises:
        TooMany: it did.
    """
    wait_s = math.ceil(counters.held_s([f"guessing:{one_host(address)}"]))
    if wait_s:
        raise _too_many_guesses(wait_s)


def wrong_secret_note(*, address: str, key: str) -> None:
    """Count a key whose secret was wrong.

    Many wrong ones from an address block all requests from there. Many for a key, from any
    address, only change the response: an attacker must not keep its owner out.

    Raises:
        TooMany: it was one too many.
    """
    host = one_host(address)
    window = int(time.time() // WINDOW_S)
    of_address = counters.add(f"wrong:{host}:{window}", keep_s=WINDOW_S)
    of_key = counters.add(f"wrong-key:{_digest(key)}:{window}", keep_s=WINDOW_S) if key else 0
    if of_address > settings.RPM_WRONG_SECRETS_PER_ADDRESS:
        counters.hold(f"guessing:{host}", WINDOW_S)
        raise _too_many_guesses(WINDOW_S)
    if of_key > settings.RPM_WRONG_SECRETS_PER_KEY:
        raise _too_many_guesses(math.ceil((window + 1) * WINDOW_S - time.time()))


@dataclass(frozen=True, slots=True)
class LogInAttempt:
    """A password that may be checked now; it counts as a wrong one until it was right.

    Args:
        held: the counters that this attempt holds.
    """

    keys: tuple[str, ...]
    held: tuple[str, ...]


def log_in_admit(*, username: str, address: str) -> LogInAttempt:
    """Count an attempt before its password is checked, so that concurrent ones count, too.

    Known and unknown accounts are counted alike.

    Raises:
        TooMany: too many were wrong; the wait doubles with each further one.
    """
    keys = _log_in_keys(username, address)
    names = tuple(name for name, _ in keys)
    _log_in_not_held(names)
    held: list[str] = []
    for name, free in keys:
        over = counters.add(name, keep_s=FORGET_S) - free
        if over < 0:
            continue
        # Of concurrent attempts, the one that holds the key is the last to be checked.
        wait_s = min(FIRST_WAIT_S * 2 ** min(over, 30), settings.RPM_LOG_IN_WAIT_MAX_S)
        if not counters.hold_new(_held(name), wait_s):
            counted = names[: names.index(name) + 1]
            _log_in_release(LogInAttempt(counted, tuple(held)))
            _log_in_not_held(names)
            raise _too_many_passwords(math.ceil(FIRST_WAIT_S))
        held.append(_held(name))
    return LogInAttempt(names, tuple(held))


def log_in_succeeded(attempt: LogInAttempt) -> None:
    """Forget the wrong passwords of this person at this address; others still count."""
    _log_in_release(attempt)
    pair = attempt.keys[0]
    counters.forget([pair, _held(pair)])


def _log_in_release(attempt: LogInAttempt) -> None:
    for name in attempt.keys:
        counters.add(name, -1, keep_s=FORGET_S)
    if attempt.held:
        counters.forget(attempt.held)


def _log_in_not_held(names: Iterable[str]) -> None:
    wait_s = math.ceil(counters.held_s(_held(name) for name in names))
    if wait_s:
        raise _too_many_passwords(wait_s)


def _too_many_passwords(wait_s: int) -> TooMany:
    return TooMany(
        f"Too many wrong passwords: try again in {_wait_text(wait_s)}.", retry_after_s=wait_s
    )


def is_refusal_recorded(address: str) -> bool:
    """Whether one more refused log-in of this address is recorded: anybody can begin them."""
    return not meter.wait_s(f"refused:{one_host(address)}", limit=_REFUSALS)


def _log_in_keys(username: str, address: str) -> list[tuple[str, int]]:
    """The counters with their free attempts; the account at this address comes first."""
    tries: int = settings.RPM_LOG_IN_TRIES
    # Names as people typed them: a digest has one length, and reveals nothing to readers of Redis.
    account, host = _digest(username.strip().casefold()), one_host(address)
    return [
        (f"log-in:{account}:{host}", tries * _PAIR),
        (f"log-in-address:{host}", tries * _ADDRESS),
        (f"log-in-account:{account}", tries * _ACCOUNT),
    ]


def _held(name: str) -> str:
    return f"{name}:held"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def _wait_text(wait_s: int) -> str:
    if wait_s < 120:
        return f"{wait_s} seconds"
    return f"{math.ceil(wait_s / 60)} minutes"


def _too_many_guesses(wait_s: int) -> TooMany:
    return TooMany("Too many wrong keys or secrets.", retry_after_s=wait_s)
