"""`manage.py person add | list`: people and service accounts, from the command line."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from apps.accounts.models import Scope, User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_record
from apps.accounts.services.service_accounts import service_account_create
from apps.core.errors import RpmError


class Command(BaseCommand):
    help = "Add a person, or list them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = verbs.add_parser("add", help="a person, their groups, and if asked a credential")
        add.add_argument("username")
        add.add_argument("--email", default="")
        add.add_argument("--group", action="append", default=[], help="made where it is new")
        add.add_argument("--password-stdin", action="store_true", help="read it from a pipe")
        add.add_argument("--credential", action="store_true", help="make one and print it once")
        add.add_argument(
            "--service", action="store_true", help="a service account; its credential is printed"
        )
        add.add_argument(
            "--scope", choices=Scope.values, help="of the credential; default: administer"
        )
        verbs.add_parser("list", help="everybody, with their groups")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["verb"] == "list":
            self._list()
            return
        password = sys.stdin.readline().rstrip("\n") if options["password_stdin"] else None
        try:
            self._add(options, password)
        except RpmError as error:
            raise CommandError(error.detail) from error

    @transaction.atomic
    def _add(self, options: dict[str, Any], password: str | None) -> None:
        for name in options["group"]:
            Group.objects.get_or_create(name=name)
        scope = Scope(options["scope"] or Scope.ADMINISTER)
        if options["service"]:
            made = service_account_create(
                actor=None, name=options["username"], groups=options["group"], scope=scope
            )
            self.stdout.write(f"{made.credential.key} {made.secret}")
            return
        user = user_create(
            username=options["username"],
            password=password,
            email=options["email"],
            groups=options["group"],
        )
        person_record("person.made", actor=None, user=user, before={})
        if options["credential"]:
            credential, secret = credential_create(
                user=user, label="Made with the account", scope=scope
            )
            self.stdout.write(f"{credential.key} {secret}")
        else:
            self.stdout.write(f"{user.username} is added.")

    def _list(self) -> None:
        for user in User.objects.prefetch_related("groups").order_by("username"):
            groups = ", ".join(sorted(group.name for group in user.groups.all()))
            kind = "service account" if user.is_service else "person"
            state = "" if user.is_active else " (inactive)"
            self.stdout.write(f"{user.username}\t{kind}{state}\t{groups}")
