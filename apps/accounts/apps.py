"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth.signals import user_logged_in
from django.db.models.signals import post_init, post_migrate
from django.utils.module_loading import import_string


def _ensure_groups(**_: Any) -> None:
    import_string("apps.accounts.services.people.built_in_groups_ensure")()


def _note_sign_in(**given: Any) -> None:
    import_string("apps.accounts.services.presence.person_sign_in_note")(**given)


def _note_session(**given: Any) -> None:
    import_string("apps.accounts.middleware.session_start_note")(**given)


def _bind_factor(**given: Any) -> None:
    import_string("apps.accounts.services.factor_seals.factor_bind")(**given)


class AccountsConfig(AppConfig):
    name = "apps.accounts"
    label = "accounts"
    verbose_name = "People"

    def ready(self) -> None:
        post_migrate.connect(_ensure_groups, sender=self)
        factor = apps.get_model("mfa", "Authenticator")
        post_init.connect(_bind_factor, sender=factor, dispatch_uid="accounts.factor")
        user_logged_in.connect(_note_sign_in, dispatch_uid="accounts.came")
        user_logged_in.connect(_note_session, dispatch_uid="accounts.session")
