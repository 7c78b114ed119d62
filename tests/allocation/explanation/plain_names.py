"""The ids as names, for tests of sentences."""

from __future__ import annotations

from apps.allocation.engine.model.snapshot import Id


class PlainNames:
    """Every id with its kind."""

    def pool(self, id_: Id) -> str:
        return f"pool {id_}"

    def policy(self, id_: Id) -> str:
        return f"policy {id_}"

    def is_reader(self, _id: Id) -> bool:
        return True

    def queue(self, id_: Id) -> str:
        return f"queue {id_}"

    def task(self, id_: Id) -> str:
        return f"task {id_}"
