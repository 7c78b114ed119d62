"""How often somebody may ask, guess a secret, or try a password.

Requests are counted per credential and per address, wrong secrets per address and per key, wrong
passwords per account, per address and for both together. What is counted here is not in the
database: it is forgotten after minutes, and shared by the processes over Redis.
"""

import hashlib
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from apps.core.counting import WINDOW_S, Counters, Meter
from apps.core.errors import TooMany
from apps.core.origin import one_host

# Wrong passwords are forgotten so long after the last one.
FORGET_S: Final = 3600.0
FIRST_WAIT_S: Final = 5.0
# Tries that are free, as multiples of `RPM_LOG_IN_TRIES`: many people share an address, and
# whoever tries an account from everywhere must not easily keep its owner out.
_PAIR, _ADDRESS, _ACCOUNT = 1, 4, 10

# Log-ins that identity providers vouch for and that are refused, kept per address and minute.
_REFUSALS: Final = 30

counters = Counters()
meter = Meter(counters)


def address_admitted(address: str) -> None:
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


def provider_step_admitted(address: str) -> None:
    """Count a step of a log-in with an identity provider, which anybody may begin.

    Raises:
        TooMany: this address made too many in this minute.
    """
    limit: int = settings.RPM_PROVIDER_STEPS_PER_ADDRESS
    wait_s = meter.wait_s(f"provider-step:{one_host(address)}", limit=limit)
    if wait_s:
        raise TooMany(
            f"Too many log-ins from this address: try again in {_told(wait_s)}.",
            retry_after_s=wait_s,
        )


def credential_admitted(ident: str) -> None:
    """Count a request of this credential, or of the session of a person.

    Raises:
        TooMany: it was used too often in this minute.
    """
    limit: int = settings.RPM_REQUESTS_PER_CREDENTIAL
    wait_s = meter.wait_s(f"credential:{ident}", limit=limit)
    if wait_s:
        raise TooMany(f"More than {limit} requests in a minute.", retry_after_s=wait_s)


def guesser_refused(address: str) -> None:
    """Nothing that this address presents is looked at for a while, where it guessed too often.

    Raises:
        TooMany: it did.
    """
    wait_s = math.ceil(counters.held_s([f"guessing:{one_host(address)}"]))
    if wait_s:
        raise _too_many_guesses(wait_s)


def wrong_secret_note(*, address: str, key: str) -> None:
    """Count a key whose secret was wrong.

    Many wrong ones from an address hold back all that comes from there. Many for a key, from
    wherever, are only answered otherwise: its owner must not be kept out by a stranger.

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
class LogInTry:
    """A password that may be checked now; it counts as a wrong one until it was right.

    Args:
        held: what was held for this try.
    """

    keys: tuple[str, ...]
    held: tuple[str, ...]


def log_in_admitted(*, username: str, address: str) -> LogInTry:
    """Count a try before its password is checked, so that many at once are not more tries.

    The same for accounts that there are and that there are not.

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
        # Of those that come at once, the one that holds the key is the last to be checked.
        wait_s = min(FIRST_WAIT_S * 2 ** min(over, 30), settings.RPM_LOG_IN_WAIT_MAX_S)
        if not counters.hold_new(_held(name), wait_s):
            counted = names[: names.index(name) + 1]
            _log_in_give_back(LogInTry(counted, tuple(held)))
            _log_in_not_held(names)
            raise _too_many_passwords(math.ceil(FIRST_WAIT_S))
        held.append(_held(name))
    return LogInTry(names, tuple(held))


def log_in_worked(tried: LogInTry) -> None:
    """Forget the wrong ones of this person at this address; others there count on."""
    _log_in_give_back(tried)
    pair = tried.keys[0]
    counters.forget([pair, _held(pair)])


def _log_in_give_back(tried: LogInTry) -> None:
    for name in tried.keys:
        counters.add(name, -1, keep_s=FORGET_S)
    if tried.held:
        counters.forget(tried.held)


def _log_in_not_held(names: Iterable[str]) -> None:
    wait_s = math.ceil(counters.held_s(_held(name) for name in names))
    if wait_s:
        raise _too_many_passwords(wait_s)


def _too_many_passwords(wait_s: int) -> TooMany:
    return TooMany(f"Too many wrong passwords: try again in {_told(wait_s)}.", retry_after_s=wait_s)


def refusal_is_kept(address: str) -> bool:
    """Whether one more refused log-in of this address is written down: anybody can begin them."""
    return not meter.wait_s(f"refused:{one_host(address)}", limit=_REFUSALS)


def _log_in_keys(username: str, address: str) -> list[tuple[str, int]]:
    """What is counted, with the tries that are free; the account at this address comes first."""
    tries: int = settings.RPM_LOG_IN_TRIES
    # As typed by people: the digest has one length, and tells nothing to who reads Redis.
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


def _told(wait_s: int) -> str:
    if wait_s < 120:
        return f"{wait_s} seconds"
    return f"{math.ceil(wait_s / 60)} minutes"


def _too_many_guesses(wait_s: int) -> TooMany:
    return TooMany("Too many wrong keys or secrets.", retry_after_s=wait_s)
