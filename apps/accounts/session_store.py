"""Sessions as Django stores them, found by the hash of their key.

A reader of the database or of a backup cannot sign in with what it holds.
"""

import hashlib
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.sessions.backends import db
from django.utils import timezone


def stored_key(key: str) -> str:
    """The stored form of a session's key, which only its browser knows."""
    return hashlib.sha256(key.encode()).hexdigest()[:40]


class SessionStore(db.SessionStore):
    """Django's store, with the hash in place of the key wherever a row is read or written."""

    def _get_session_from_db(self) -> Any:
        rows = self.model.objects.filter(expire_date__gt=timezone.now())
        found = rows.filter(session_key=stored_key(self.session_key or "")).first()
        if found is None:
            self._session_key = None
        return found

    async def _aget_session_from_db(self) -> Any:
        return await sync_to_async(self._get_session_from_db)()

    def exists(self, session_key: str) -> bool:
        return super().exists(stored_key(session_key))

    async def aexists(self, session_key: str) -> bool:
        return await super().aexists(stored_key(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        row = super().create_model_instance(data)
        row.session_key = stored_key(row.session_key)
        return row

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        row = await super().acreate_model_instance(data)
        row.session_key = stored_key(row.session_key)
        return row

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is not None:
            self.model.objects.filter(session_key=stored_key(key)).delete()

    async def adelete(self, session_key: str | None = None) -> None:
        await sync_to_async(self.delete)(session_key)
