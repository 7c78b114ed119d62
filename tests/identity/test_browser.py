"""Log-ins and second factors in Chromium, with real providers on another site.

This installation is `localhost` here and the providers are `127.0.0.1`, so that cookies meet what
they meet between two companies.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import ADMINS, IdentityProvider, User
from apps.accounts.services.identity import mapping_set, provider_change, provider_create
from apps.accounts.services.people import user_create
from apps.events.models import AuditEntry
from tests.browser.conftest import AXE
from tests.browser.pages import OVERFLOW, violations
from tests.identity.conftest import OIDC, SAML, oidc_values
from tests.identity.providers import Server, running_oidc, running_saml
from tests.services.browser import DESKTOP, PHONE
from tests.services.requirements import need

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
ADA = {"email": "ada@example.com", "email_verified": True, "given_name": "Ada"}
# A key that is always there, touched at once.
KEY = {
    "protocol": "ctap2",
    "transport": "usb",
    "hasResidentKey": False,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture(autouse=True)
def front_end(live_server: LiveServer, loopback: None) -> None:
    need("chromium")
    if not AXE.exists():
        need("pages", because="run `python tools/assets.py --dev`")


@pytest.fixture(scope="module")
def oidc_there(live_server: LiveServer) -> Iterator[Server]:
    with running_oidc(f"{live_server.url}/sign-in/with/{OIDC}/callback/") as server:
        yield server


@pytest.fixture(scope="module")
def saml_there(live_server: LiveServer) -> Iterator[Server]:
    base = f"{live_server.url}/sign-in/with/{SAML}"
    with running_saml(f"{base}/acs/", f"{base}/metadata/") as server:
        yield server


@pytest.fixture
def boss(db: None) -> User:
    return user_create(username="boss", password=PASSWORD, groups=[ADMINS])


def by_button(page: Page, site: LiveServer, *, next_url: str = "/tasks/") -> None:
    page.goto(f"{site.url}/sign-in/?next={next_url}")
    page.get_by_role("link", name="Continue with Company").click()


def by_password(page: Page, site: LiveServer, name: str = "boss") -> None:
    page.goto(f"{site.url}/sign-in/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def leave(page: Page) -> None:
    page.get_by_role("button", name="your account").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def flaws(page: Page) -> list[str]:
    """What is wrong with how this page looks, wide and narrow, light and dark."""
    # What lies under the bar at the top is no target now.
    page.evaluate("scrollTo(0, 0)")
    found = violations(page, AXE.read_text(encoding="utf-8"))
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    if page.evaluate(OVERFLOW) > 0:
        found.append(f"{page.url} is wider than a phone")
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    return found


def groups_of(name: str) -> set[str]:
    return set(User.objects.get(email=name).groups.values_list("name", flat=True)) - {"Users"}


def comes_and_goes(
    page: Page, site: LiveServer, server: Server, row: IdentityProvider, root: User
) -> None:
    """Refused first, then made; groups joined and left as the provider says."""
    ours = {name: Group.objects.create(name=name) for name in ("dev", "research")}
    server.person("u-1", **ADA, groups=["ml"])

    by_button(page, site)
    expect(page.get_by_text("Ask an administrator to invite you as ada@")).to_be_visible()
    assert not User.objects.filter(email="ada@example.com").exists()

    provider_change(actor=root, provider=row, values={"creates_people": True, "syncs_groups": True})
    mapping_set(row, [("ml", ours["dev"]), ("science", ours["research"])])
    by_button(page, site)
    expect(page).to_have_url(f"{site.url}/tasks/")
    assert groups_of("ada@example.com") == {"dev"}

    leave(page)
    page.goto(f"{site.url}/tasks/")
    expect(page).to_have_url(re.compile(r"/sign-in/"))
    server.person("u-1", **ADA, groups=["science"])
    by_button(page, site)
    expect(page).to_have_url(f"{site.url}/tasks/")
    assert groups_of("ada@example.com") == {"research"}


def test_a_person_comes_in_with_openid_connect_and_goes(
    live_server: LiveServer, oidc_there: Server, root: User, page: Page
) -> None:
    values = oidc_values(oidc_there)
    row = provider_create(actor=root, preset="oidc", slug=OIDC, values=values)

    comes_and_goes(page, live_server, oidc_there, row, root)


def test_a_person_comes_in_with_saml_and_goes(
    live_server: LiveServer, saml_there: Server, root: User, page: Page
) -> None:
    values = {"name": "Company", "metadata": saml_there.metadata(), "trusts_email": True}
    row = provider_create(actor=root, preset="saml", slug=SAML, values=values)

    comes_and_goes(page, live_server, saml_there, row, root)


@pytest.mark.parametrize("protocol", ["oidc", "saml"])
def test_an_administrator_tests_a_provider_before_it_is_saved(
    live_server: LiveServer,
    oidc_there: Server,
    saml_there: Server,
    boss: User,
    page: Page,
    protocol: str,
) -> None:
    Group.objects.create(name="dev")
    server, slug = (oidc_there, OIDC) if protocol == "oidc" else (saml_there, SAML)
    server.person("u-1", **ADA, groups=["ml", "other"])
    by_password(page, live_server)
    page.goto(f"{live_server.url}/settings/identity/new/{protocol}/?slug={slug}")
    page.get_by_label("Display name").fill("Company")
    type_addresses(page, server, protocol)
    page.get_by_label("Synchronise groups").check()
    page.get_by_label("Their groups and ours").fill("ml = dev\nscience = dev")
    found = flaws(page)
    page.get_by_role("button", name="Test connection").click()
    found += flaws(page)
    page.get_by_role("link", name="Log in at the provider").click()

    expect(page.get_by_text("everything about its answer was checked")).to_be_visible()
    expect(page.get_by_role("row", name="ml dev member", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name="science dev not a member")).to_be_visible()
    expect(page.get_by_text("ada@example.com").first).to_be_visible()
    assert not IdentityProvider.objects.exists()
    assert not User.objects.filter(email="ada@example.com").exists()
    found += flaws(page)
    page.get_by_role("link", name="Back to the form").click()
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("link", name="Company", exact=True)).to_be_visible()
    assert IdentityProvider.objects.get().mapping.count() == 2
    assert "\n".join(found + flaws(page)) == ""


def type_addresses(page: Page, server: Server, protocol: str) -> None:
    """What the two protocols ask for."""
    if protocol == "oidc":
        values = oidc_values(server)
        page.get_by_label("Client id").fill(str(values["client_id"]))
        page.get_by_label("Client secret").fill(str(values["client_secret"]))
        page.get_by_label("Discovery address").fill(str(values["discovery_url"]))
        page.get_by_label("Additional scopes").fill("groups")
        return
    content = server.metadata().encode()
    file = {"name": "metadata.xml", "mimeType": "application/xml", "buffer": content}
    page.get_by_label("Metadata file").set_input_files(file)  # type: ignore[arg-type]  # as documented


def test_a_security_key_is_added_asked_for_and_removed(
    live_server: LiveServer, boss: User, page: Page
) -> None:
    session: Any = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": KEY})
    by_password(page, live_server)
    page.goto(f"{live_server.url}/settings/second-factor/")
    page.get_by_role("link", name="Add a security key").click()
    page.get_by_label("Name").fill("Blue key")
    found = flaws(page)
    page.get_by_role("button", name="Add key").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    found += flaws(page)
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_text("1 key. You touch it to sign in.")).to_be_visible()
    found += flaws(page)

    leave(page)
    by_password(page, live_server)
    expect(page.get_by_role("heading", name="Second factor")).to_be_visible()
    page.goto(f"{live_server.url}/tasks/")
    expect(page).to_have_url(re.compile(r"/sign-in/"))
    by_password(page, live_server)
    found += flaws(page)
    page.get_by_role("button", name="Use a security key").click()
    expect(page).to_have_url(f"{live_server.url}/")

    page.goto(f"{live_server.url}/settings/second-factor/keys/")
    found += flaws(page)
    page.get_by_role("link", name="Remove… Blue key").click()
    found += flaws(page)
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No security key yet")).to_be_visible()

    leave(page)
    by_password(page, live_server)
    expect(page).to_have_url(f"{live_server.url}/")
    assert "\n".join(found) == ""
    entries = AuditEntry.objects.filter(verb__startswith="second_factor.").order_by("pk")
    key, codes = {"kind": "webauthn", "called": "Blue key"}, {"kind": "recovery_codes"}
    assert [(entry.verb, entry.before, entry.after) for entry in entries] == [
        ("second_factor.added", {}, key),
        ("second_factor.added", {}, codes),
        ("second_factor.removed", key, {}),
        ("second_factor.removed", codes, {}),
    ]


def test_an_app_is_set_up_on_a_page_that_shows_its_picture(
    live_server: LiveServer, boss: User, page: Page
) -> None:
    by_password(page, live_server)
    page.goto(f"{live_server.url}/settings/second-factor/")
    page.get_by_role("link", name="Set up an authenticator app").click()

    picture = page.get_by_role("img", name="QR code with the secret")
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.naturalWidth") > 0
    found = flaws(page)
    page.get_by_label("Authenticator code").fill("000000")
    page.get_by_role("button", name="Set up").click()
    expect(page.locator("[aria-invalid=true]")).to_be_focused()
    assert "\n".join(found + flaws(page)) == ""
