"""`manage.py audit`: prove that the audit log is whole, and seal waiting entries."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.core.terminal import plain
from apps.events.chain_check import MOST_FINDINGS
from apps.events.selectors import audit_unsealed, audit_verified
from apps.events.services.seals import audit_seal


class Command(BaseCommand):
    help = "Verify the chain of the audit log, or seal the entries that wait for it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verify = verbs.add_parser("verify", help="go through all entries; status 1 if not whole")
        verify.add_argument(
            "--expect", default="", metavar="HASH", help="a head that was printed or kept earlier"
        )
        verbs.add_parser("seal", help="seal waiting entries, as the worker does every few seconds")

    def handle(self, *_args: Any, verb: str, **options: Any) -> None:
        if verb == "seal":
            self.stdout.write(f"{audit_seal()} sealed.")
        else:
            self._verify(options["expect"].strip().lower())

    def _verify(self, expect: str) -> None:
        report = audit_verified(expect=expect)
        for finding in report.findings:
            self.stdout.write(plain(finding.sentence))
        if len(report.findings) >= MOST_FINDINGS:
            self.stdout.write("… and more.")
        waiting = audit_unsealed()
        if waiting:
            self.stdout.write(f"{waiting} not sealed yet: no part of the chain so far.")
        if report.findings:
            raise CommandError("The audit log is not whole.")
        self._say_whole(report.length, report.head, report.expected_at)

    def _say_whole(self, length: int, head: str, expected_at: int | None) -> None:
        self.stdout.write(f"The audit log is whole: {length} entries.")
        if expected_at is not None:
            self.stdout.write(f"The expected hash is that of entry {expected_at}.")
        self.stdout.write(f"Head: {head}")
        self.stdout.write("Keep the head elsewhere; `audit verify --expect HEAD` then proves more.")
