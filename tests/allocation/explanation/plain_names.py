"""The ids as names, for tests of sentences."""

from __future__ import annotations

from datetime import date

from apps.allocation.engine.model.snapshot import Id


class PlainNames:
    """Every id with its kind."""

    def pool(self, id_: Id) -> str:
        return f"pool {id_}"

    def policy(self, id_: Id) -> str:
        return f"policy {id_}"

    def budget(self, _id: Id, _month: date) -> str:
        return "1,000.00 of 1,000.00 EUR"

    def is_reader(self, _id: Id) -> bool:
        return True

    def queue(self, id_: Id) -> str:
        return f"queue {id_}"

    def task(self, id_: Id) -> str:
        return f"task {id_}"
