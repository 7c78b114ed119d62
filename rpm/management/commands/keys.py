"""`manage.py keys`: the key ring that seals secrets at rest."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.services.identity_sealing import identity_secrets_reseal
from apps.core import keyring
from apps.events.services import event_record
from apps.policies.services import registry_passwords_reseal
from apps.tasks.services.sealing import secrets_reseal
from apps.vaults.services.keeping import vaults_reseal


class Command(BaseCommand):
    help = "Rotate the keys that seal vaults, secrets of tasks and passwords of registries."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list", help="How many keys there are, and where they come from.")
        actions.add_parser("new", help="Print a key that nobody has yet, for RPM_SECRET_KEYS.")
        actions.add_parser("rotate", help="Make a new key and seal everything with it.")
        actions.add_parser("prune", help="Drop all keys but the first; seals everything before.")

    def handle(self, *_args: Any, action: str, **_options: Any) -> None:
        try:
            {
                "list": self._list,
                "new": self._new,
                "rotate": self._rotate,
                "prune": self._prune,
            }[action]()
        except (ValueError, keyring.KeyMissing) as error:
            raise CommandError(str(error)) from error

    def _list(self) -> None:
        by_variable = bool(settings.RPM_SECRET_KEYS)
        place = "the variable RPM_SECRET_KEYS" if by_variable else settings.RPM_KEY_RING_FILE
        count = len(keyring.keys())
        self.stdout.write(f"{count} key{'s' if count > 1 else ''} in {place}; the first one seals.")

    def _new(self) -> None:
        self.stdout.write(keyring.new_key())

    def _rotate(self) -> None:
        if settings.RPM_SECRET_KEYS:
            self._reseal()
            self.stdout.write(
                "The keys come from RPM_SECRET_KEYS. For a new one: put it behind the others and "
                "restart all processes; then put it first, restart them again, and rotate.\n"
                f"A new key: {keyring.new_key()}"
            )
            return
        keyring.write_keys((keyring.new_key(), *keyring.keys()))
        _note("keys.rotated")
        self._reseal()
        self.stdout.write("Older keys stay, for what is being sealed now; `keys prune` drops them.")

    def _prune(self) -> None:
        self._reseal()
        dropped = len(keyring.keys()) - 1
        keyring.write_keys(keyring.keys()[:1])
        _note("keys.pruned", dropped=dropped)
        self.stdout.write(
            f"Dropped {dropped} key{'' if dropped == 1 else 's'}. Backups made before need theirs: "
            "each holds its own key ring."
        )

    def _reseal(self) -> None:
        tasks, registries = secrets_reseal(), registry_passwords_reseal()
        vaults = vaults_reseal()
        providers, factors = identity_secrets_reseal()
        self.stdout.write(
            f"Sealed the secrets of {tasks} task{'' if tasks == 1 else 's'}, {registries} "
            f"password{'' if registries == 1 else 's'} of registries and {vaults} "
            f"vault{'' if vaults == 1 else 's'} with the first key; and those of {providers} "
            f"identity provider{'' if providers == 1 else 's'} and of {factors} second "
            f"factor{'' if factors == 1 else 's'}."
        )


def _note(kind: str, **told: int) -> None:
    event_record(
        kind,
        actor=None,
        object_type="installation",
        object_id="1",
        data={"name": "Key ring", "keys_now": len(keyring.keys()), **told},
    )
