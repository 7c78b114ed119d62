"""Writes that belong to no revision of the configuration: its version, registry credentials."""

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F

from apps.accounts.models import User
from apps.core.errors import BadInput
from apps.core.keyring import HIDDEN, reseal, seal
from apps.core.model_errors import from_model_error
from apps.core.resealer import Resealer
from apps.events.services import event_record
from apps.policies.models import LiveState, RegistryCredential

PASSWORD_LENGTH = 16_384


def live_version_raise() -> None:
    """Count the version of the live configuration up; its row stays locked until the commit.

    Call it with every change of what decides whether a queue takes a task: processes cache that
    per version (`apps.tasks.selectors.facts`).
    """
    LiveState.objects.filter(id=1).update(version=F("version") + 1)


@transaction.atomic
def registry_credential_save(
    *,
    actor: User | None,
    group: Group,
    registry: str,
    username: str,
    password: str = HIDDEN,
    credential: RegistryCredential | None = None,
) -> RegistryCredential:
    """Create or change the credential with which a group pulls images of a registry.

    Args:
        password: stored sealed; HIDDEN keeps the one that is there.

    Raises:
        BadInput: naming the field.
    """
    row = RegistryCredential(version=0)
    if credential is not None:
        row = RegistryCredential.objects.select_for_update().get(pk=credential.pk)
    before = _facts(row) if credential is not None else {}
    is_elsewhere = row.registry != registry.strip()
    sealed_for = row.password_context
    row.group, row.registry, row.username = group, registry.strip(), username.strip()
    row.version += 1
    if password != HIDDEN:
        _check_password(password)
        row.sealed_password = seal(password, context=row.password_context)
    elif not row.sealed_password or is_elsewhere:
        # What was meant for one registry is never sent to another one.
        _refuse_password("must be given again")
    elif row.password_context != sealed_for:
        row.sealed_password = reseal(
            row.sealed_password, context=sealed_for, to=row.password_context
        )
    _check_username(row.username)
    try:
        row.full_clean(exclude=["sealed_password"])
    except ValidationError as error:
        raise from_model_error(error) from error
    row.save()
    more = {"has_new_password": password != HIDDEN, "before": before, "after": _facts(row)}
    _record("registry_credential.saved", row, actor=actor, **more)
    return row


@transaction.atomic
def registry_credential_remove(*, actor: User | None, credential: RegistryCredential) -> None:
    """Delete the credential; a pull that is under way goes on."""
    _record("registry_credential.removed", credential, actor=actor, before=_facts(credential))
    credential.delete()


def registry_passwords_reseal(resealer: Resealer) -> int:
    """Seal all passwords again.

    Returns:
        How many there are.
    """
    rows = list(RegistryCredential.objects.order_by("pk"))
    for row in rows:
        found = resealer.value(row.sealed_password, row.password_context)
        if found != row.sealed_password:
            # One that changes meanwhile is sealed with the first key anyway.
            RegistryCredential.objects.filter(
                pk=row.pk, sealed_password=row.sealed_password
            ).update(sealed_password=found)
    return len(rows)


def _check_username(username: str) -> None:
    # Both go to the registry as user:password.
    if ":" in username or not username.isprintable():
        raise BadInput(
            "username: use printable characters without a colon.",
            fields={"username": "use printable characters without a colon"},
        )


def _check_password(password: str) -> None:
    if not password:
        _refuse_password("must be given")
    if len(password) > PASSWORD_LENGTH or not password.isprintable():
        _refuse_password(f"use at most {PASSWORD_LENGTH} printable characters")


def _refuse_password(words: str) -> None:
    raise BadInput(f"password: {words}.", fields={"password": words})


def _facts(credential: RegistryCredential) -> dict[str, str]:
    """All but the password."""
    return {
        "group": credential.group.name,
        "registry": credential.registry,
        "username": credential.username,
    }


def _record(
    kind: str, credential: RegistryCredential, *, actor: User | None, **more: object
) -> None:
    event_record(
        kind,
        actor=actor,
        object_type="registry_credential",
        object_id=credential.pk,
        data={**_facts(credential), **more},
    )
