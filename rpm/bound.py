"""One bound that a user of RPM can reach."""

from dataclasses import dataclass
from importlib import import_module

from django.conf import settings


@dataclass(frozen=True, slots=True)
class Bound:
    """`setting` is `module:NAME`, or the name of a setting; `test` a function below `tests`."""

    scope: str
    what: str
    setting: str
    test: str

    @property
    def value(self) -> int | float:
        module, _, name = self.setting.rpartition(":")
        found: int | float = getattr(import_module(module) if module else settings, name)
        return found
