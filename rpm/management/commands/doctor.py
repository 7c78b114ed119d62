"""`manage.py doctor`: what works, what does not, and how to fix it."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rpm.health import examine


class Command(BaseCommand):
    help = "Check everything this installation needs, and say what is wrong."

    def handle(self, *_args: Any, **_options: Any) -> None:
        findings = examine()
        for finding in findings:
            mark = "ok  " if finding.is_fine else "BAD "
            self.stdout.write(f"{mark} {finding.name:<11} {finding.words}")
            if finding.fix:
                self.stdout.write(f"     {'':<11} {finding.fix}")
        wrong = sum(not finding.is_fine for finding in findings)
        if wrong:
            raise CommandError(f"{wrong} of {len(findings)} things need attention.")
