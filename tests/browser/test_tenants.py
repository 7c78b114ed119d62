"""A tenant as administrators make it, and what its own administrator finds and does."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation
from tests.services.browser import NewPage

PASSWORD = "Correct-horse-7-battery"
MADE = f"""
from django.contrib.auth.models import Group
from apps.accounts.services.people import user_create
from apps.configuration.services.policies import policy_create
heads = Group.objects.create(name="acme-heads")
Group.objects.create(name="acme-people")
policy_create(actor=None, name="Acme", group=heads, reserved={{"gpu": 2}}, limit={{"gpu": 4}})
user_create(username="adam", password="{PASSWORD}", groups=["acme-heads"])
"""


def test_a_tenant_is_made_and_its_administrator_works_below_the_top(
    site: Installation, sign_in: SignIn, page: Page, new_page: NewPage, axe: str
) -> None:
    site.manage("shell", "--command", MADE)
    sign_in(page, "admin")
    page.goto(f"{site.address}/settings/tenants/")
    page.get_by_role("link", name="Create tenant…").click()
    page.get_by_label("Top policy").select_option("Acme")
    page.get_by_label("Administrators").select_option("acme-heads")
    page.get_by_label("acme-people").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("cell", name="Acme", exact=True)).to_be_visible()
    assert violations(page, axe) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(OVERFLOW) <= 0

    his = new_page()
    his.goto(f"{site.address}/sign-in/")
    his.get_by_label("User").fill("adam")
    his.get_by_label("Password").fill(PASSWORD)
    his.get_by_role("button", name="Sign in").click()
    his.goto(f"{site.address}/policies/")
    expect(his.get_by_role("link", name="Acme", exact=True)).to_be_visible()
    expect(his.get_by_text("demo-dev")).to_have_count(0)
    his.get_by_role("link", name="Create policy").click()
    form = his.get_by_role("dialog")
    form.get_by_label("Name", exact=True).fill("Acme robots")
    form.get_by_label("Group", exact=True).select_option("acme-people")
    form.get_by_label("Parent", exact=False).first.select_option("Acme")
    form.get_by_label("Reservation, GPU").fill("3")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_text("which has 2 reserved")).to_be_visible()
    form.get_by_label("Reservation, GPU").fill("2")
    form.get_by_role("button", name="Save").click()

    expect(his.get_by_role("heading", name="Acme robots").first).to_be_visible()
    his.goto(f"{site.address}/settings/people/")
    expect(his.get_by_role("link", name="adam", exact=True)).to_be_visible()
    expect(his.get_by_role("link", name="admin", exact=True)).to_have_count(0)
