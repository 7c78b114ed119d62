"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string


def _ensure_groups(**_: Any) -> None:
    import_string("apps.accounts.services.people.built_in_groups_ensure")()


def _note_coming(**given: Any) -> None:
    import_string("apps.accounts.services.presence.person_came")(**given)


def _note_session(**given: Any) -> None:
    import_string("apps.accounts.middleware.session_began")(**given)


class AccountsConfig(AppConfig):
    name = "apps.accounts"
    label = "accounts"
    verbose_name = "People"

    def ready(self) -> None:
        post_migrate.connect(_ensure_groups, sender=self)
        user_logged_in.connect(_note_coming, dispatch_uid="accounts.came")
        user_logged_in.connect(_note_session, dispatch_uid="accounts.session")
