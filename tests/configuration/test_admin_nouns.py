"""The administration site has every noun of REST."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from apps.accounts.models import IdentityProvider, LogInRules, Protocol, Tenant, User
from apps.configuration.services.tenants import tenant_create
from apps.events.models import AuditEntry
from apps.nodes.models import Installation
from apps.usage.models import Rate
from apps.vaults.models import Vault, VaultFormat
from apps.vaults.services.vaults import vault_create
from tests.configuration.site import url
from tests.people import Example

pytestmark = pytest.mark.django_db

# The rows of each noun of REST.
NOUNS = {
    "access-rules": "policies.PolicyUserPermission",
    "account": "accounts.User",
    "audit": "events.AuditEntry",
    "configuration": "policies.DraftState",
    "credentials": "accounts.Credential",
    "groups": "auth.Group",
    "identity-providers": "accounts.IdentityProvider",
    "installation": "nodes.Installation",
    "log-in-rules": "accounts.LogInRules",
    "nodes": "nodes.Node",
    "notice-rules": "notices.NoticeRule",
    "notice-settings": "notices.NoticeSettings",
    "notices": "notices.Notice",
    "passes": "allocation.PassRecord",
    "policies": "policies.Policy",
    "pools": "policies.Pool",
    "preferences": "accounts.User",
    "profiles": "policies.Profile",
    "queues": "policies.Queue",
    "service-accounts": "accounts.User",
    "tasks": "tasks.Task",
    "tenants": "accounts.Tenant",
    "usage": "usage.Rate",
    "users": "accounts.User",
    "vaults": "vaults.Vault",
    "volumes": "nodes.Volume",
}
# Answers about other nouns, and credentials in another form.
NO_ROWS = {"access", "token", "schema", "docs"}
SECRET = "p4-private-value"


def test_every_noun_of_rest_is_in_the_site_and_its_menu() -> None:
    document = yaml.safe_load((Path(settings.BASE_DIR) / "docs" / "openapi.yaml").read_text())
    found = {path.split("/")[3] for path in document["paths"]} - NO_ROWS
    registered = {model._meta.label for model in admin.site._registry}
    groups = settings.UNFOLD["SIDEBAR"]["navigation"]
    links = {str(item["link"]) for group in groups for item in group["items"]}

    assert found == set(NOUNS)
    assert set(NOUNS.values()) <= registered
    for model in admin.site._registry:
        if model._meta.label in NOUNS.values():
            assert url(model, "changelist") in links, model


@pytest.fixture
def rows(root: User, alice: User, example: Example) -> list[Any]:
    """A row of each kind that the site only shows."""
    group = Group.objects.create(name="administrators of dev")
    provider = IdentityProvider.objects.create(
        slug="corp",
        name="Corp",
        protocol=Protocol.OIDC,
        preset="oidc",
        client_id="rpm",
        client_secret_sealed=SECRET,
        private_key_sealed=SECRET,
        authorization_url="https://example.org/authorize",
        token_url="https://example.org/token",
        jwks_url="https://example.org/jwks",
    )
    tenant_create(actor=root, top=example.dev, admin_group=group, groups=[example.dev.group])
    Rate.objects.create(price=2, valid_from=timezone.now())
    Installation.objects.get_or_create(id=1)
    LogInRules.objects.get_or_create(pk=1)
    vault_create(
        actor=alice,
        name="keys",
        text=f"secrets: {{HF_TOKEN: {SECRET}}}",
        format=VaultFormat.YAML,
        is_active=True,
    )
    models: list[Any] = [Tenant, Rate, Installation, LogInRules, Vault, AuditEntry]
    return [provider, *(model._default_manager.latest("pk") for model in models)]


def test_what_the_site_only_shows_is_listed_searched_and_never_written(
    rows: list[Any], root: User
) -> None:
    site = Client()
    site.force_login(root)

    for row in rows:
        model = type(row)
        listed = site.get(url(model, "changelist"), {"q": "x"})
        shown = site.get(url(model, "change", row.pk))
        answers = [site.post(url(model, "change", row.pk)), site.get(url(model, "add"))]
        answers.append(site.post(url(model, "delete", row.pk)))
        assert listed.status_code == shown.status_code == 200, row
        assert [answer.status_code for answer in answers] == [403] * 3, row
        assert SECRET not in shown.content.decode() + listed.content.decode()
