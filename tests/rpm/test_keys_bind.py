"""`manage.py keys bind`: what a version without places has sealed is taken over once."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.utils import timezone

from apps.accounts.models import IdentityProvider, Invitation, User
from apps.core import keyring
from apps.core.keyring import SealContext
from apps.events.models import Event
from apps.policies.models import RegistryCredential
from apps.tasks.models import Task
from apps.tasks.selectors.secrets import task_secrets
from apps.vaults.models import VaultVersion
from apps.vaults.selectors.effective import layers_of
from apps.vaults.services.vaults import vault_create

pytestmark = pytest.mark.django_db

Earlier = Callable[[str], str]


@pytest.fixture
def earlier(tmp_path: Path, settings: Any) -> Earlier:
    """Seals as the version before did."""
    settings.RPM_SECRET_KEYS = []
    settings.RPM_KEY_RING_FILE = tmp_path / "key-ring"
    return lambda plain: Fernet(keyring.keys()[0]).encrypt(plain.encode()).decode()


def task_of(owner: User, **secrets: str) -> Task:
    now = timezone.now()
    return Task.objects.create(
        owner=owner, name="t", secrets=secrets, created_at=now, changed_at=now
    )


def bind(*words: str) -> str:
    said = StringIO()
    call_command("keys", "bind", *words, stdout=said, stderr=said)
    return said.getvalue()


def opened(sealed: str, context: SealContext) -> str:
    return keyring.unseal(sealed, context=context)


def test_everything_that_an_earlier_version_sealed_is_bound(
    earlier: Earlier, alice: User, dev_group: Group
) -> None:
    task = task_of(alice, A=earlier("a"), B=earlier("b"))
    vault = vault_create(actor=alice, name="v")
    VaultVersion.objects.update(sealed_text=earlier("x = 1"), sealed_data="")
    registry = RegistryCredential.objects.create(
        group=dev_group, registry="r.example.org", username="u", sealed_password=earlier("p")
    )
    provider = IdentityProvider.objects.create(
        name="P",
        slug="p-1",
        protocol="oidc",
        preset="oidc",
        client_secret_sealed=earlier("c"),
        private_key_sealed=earlier("k"),
    )
    for kind, name in (("totp", "secret"), ("recovery_codes", "seed")):
        Authenticator.objects.create(user=alice, type=kind, data={name: earlier(name)})
    invitation = Invitation.objects.create(
        user=alice,
        token_hash="h",
        created_at=timezone.now(),
        expires_at=timezone.now(),
        sealed_link=earlier("l"),
    )

    said = bind("--once")

    for row in (task, registry, provider, invitation):
        row.refresh_from_db()
    assert "bound to their places: 9" in said
    assert task_secrets(task) == {"A": "a", "B": "b"}
    assert [layer.data for layer in layers_of([(vault.pk, 1)])] == [{"x": 1}]
    assert opened(registry.sealed_password, registry.password_context) == "p"
    assert opened(provider.client_secret_sealed, provider.client_secret_context) == "c"
    assert opened(provider.private_key_sealed, provider.private_key_context) == "k"
    assert opened(invitation.sealed_link, invitation.link_context) == "l"
    for factor in Authenticator.objects.all():
        (sealed,) = factor.data.values()
        assert opened(sealed, sealed.context) in {"secret", "seed"}
    assert Event.objects.filter(kind="keys.bound").count() == 1


def test_what_is_put_back_later_is_not_taken_over_again(earlier: Earlier, alice: User) -> None:
    bind("--once")
    task = task_of(alice, A=earlier("a"))

    assert bind("--once") == ""

    task.refresh_from_db()
    with pytest.raises(keyring.SealMismatch, match="earlier version"):
        task_secrets(task)
    # An administrator may run it nevertheless, after an old process has written more values.
    bind()
    task.refresh_from_db()
    assert task_secrets(task) == {"A": "a"}


def test_what_no_key_opens_stays_and_is_named(earlier: Earlier, alice: User) -> None:
    gone = Fernet(Fernet.generate_key()).encrypt(b"a").decode()
    task = task_of(alice, A=gone, B=earlier("b"))

    said = bind("--once")

    task.refresh_from_db()
    assert task.secrets["A"] == gone
    assert opened(task.secrets["B"], task.secret_context("B")) == "b"
    assert f"{task.pk}/{alice.pk}: tasks.task.secrets A cannot be read" in said
