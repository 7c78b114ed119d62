"""`manage.py keys`: the key ring that seals secrets at rest."""

from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.services.identity_secrets import identity_secrets_reseal
from apps.core import keyring
from apps.core.errors import MOST_PROBLEMS
from apps.core.resealer import Resealer, bound_note, is_bound
from apps.events.services import event_record
from apps.policies.services import registry_passwords_reseal
from apps.tasks.services.enqueue.task_secrets import secrets_reseal
from apps.vaults.services.maintenance import vaults_reseal


class Command(BaseCommand):
    help = "Rotate the keys that seal vaults, secrets of tasks and passwords of registries."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list", help="How many keys there are, and where they come from.")
        actions.add_parser("new", help="Print a new key, for RPM_SECRET_KEYS.")
        actions.add_parser("rotate", help="Make a new key and seal everything with it.")
        actions.add_parser("prune", help="Drop all keys but the first; seals everything before.")
        bind = actions.add_parser("bind", help="Take over what an earlier version has sealed.")
        bind.add_argument("--once", action="store_true", help="only if it was never done here")

    def handle(self, *_args: Any, action: str, **options: Any) -> None:
        try:
            actions: dict[str, Callable[[], None]] = {
                "list": self._list,
                "new": self._new,
                "rotate": self._rotate,
                "prune": self._prune,
                "bind": partial(self._bind, is_once=bool(options.get("once"))),
            }
            actions[action]()
        except ValueError as error:
            raise CommandError(str(error)) from error

    def _list(self) -> None:
        by_variable = bool(settings.RPM_SECRET_KEYS)
        source = "the variable RPM_SECRET_KEYS" if by_variable else settings.RPM_KEY_RING_FILE
        count = len(keyring.keys())
        self.stdout.write(
            f"{count} key{'s' if count > 1 else ''} in {source}; the first one seals."
        )

    def _new(self) -> None:
        self.stdout.write(keyring.new_key())

    def _rotate(self) -> None:
        if settings.RPM_SECRET_KEYS:
            self.stdout.write(
                "The keys come from RPM_SECRET_KEYS. For a new one: put it behind the others and "
                "restart all processes; then put it first, restart them again, and rotate.\n"
                f"A new key: {keyring.new_key()}"
            )
            self._reseal()
            return
        keyring.write_keys((keyring.new_key(), *keyring.keys()))
        _note("keys.rotated")
        self.stdout.write("Older keys stay, for what is being sealed now; `keys prune` drops them.")
        self._reseal()

    def _prune(self) -> None:
        self._reseal()
        dropped = len(keyring.keys()) - 1
        keyring.write_keys(keyring.keys()[:1])
        _note("keys.pruned", dropped=dropped)
        self.stdout.write(
            f"Dropped {dropped} key{'' if dropped == 1 else 's'}. Backups made before need theirs: "
            "each holds its own key ring."
        )

    def _bind(self, *, is_once: bool) -> None:
        """Seal what an earlier version has sealed for the places in which it is now."""
        if is_once and is_bound():
            return
        resealer = Resealer(binds=True)
        _everything(resealer)
        bound_note(is_done=True)
        if resealer.changed:
            _note("keys.bound", values=resealer.changed)
            self.stdout.write(f"Sealed values bound to their places: {resealer.changed}.")
        if resealer.problems:
            self.stderr.write(_unreadable(resealer))

    def _reseal(self) -> None:
        resealer = Resealer()
        tasks, registries, vaults, providers, factors = _everything(resealer)
        if resealer.problems:
            raise CommandError(_unreadable(resealer))
        self.stdout.write(
            f"Sealed the secrets of {tasks} task{'' if tasks == 1 else 's'}, {registries} "
            f"password{'' if registries == 1 else 's'} of registries and {vaults} "
            f"vault{'' if vaults == 1 else 's'} with the first key; and those of {providers} "
            f"identity provider{'' if providers == 1 else 's'} and of {factors} second "
            f"factor{'' if factors == 1 else 's'}."
        )


def _everything(resealer: Resealer) -> tuple[int, int, int, int, int]:
    """Go through all that is sealed: tasks, registries, vaults, identity providers, factors."""
    return (
        secrets_reseal(resealer),
        registry_passwords_reseal(resealer),
        vaults_reseal(resealer),
        *identity_secrets_reseal(resealer),
    )


def _unreadable(resealer: Resealer) -> str:
    found = resealer.problems
    more = f"\nand {len(found) - MOST_PROBLEMS} more" if len(found) > MOST_PROBLEMS else ""
    are = "value is" if len(found) == 1 else "values are"
    return f"{len(found)} {are} as before:\n" + "\n".join(found[:MOST_PROBLEMS]) + more


def _note(kind: str, **details: int) -> None:
    event_record(
        kind,
        actor=None,
        object_type="installation",
        object_id="1",
        data={"name": "Key ring", "keys_now": len(keyring.keys()), **details},
    )
