"""What tests and pictures of pages share: which pages there are, and whether all can read them."""

from typing import Literal

from playwright.sync_api import Page, expect

from tests.end_to_end.installation import Installation

PATHS = (
    "/",
    "/tape/",
    "/tape/?table=1",
    "/search/?q=dev",
    "/tasks/?view=all",
    "/tasks/new/",
    "/queues/",
    "/policies/",
    "/policies/new/",
    "/settings/resources/",
    "/settings/resources/edit/?view=board",
    "/settings/resources/edit/?view=matrix",
    "/settings/resources/history/",
    "/settings/resources/yaml/",
    "/nodes/",
    "/nodes/add/",
    "/usage/",
    "/usage/idle/",
    "/usage/rates/",
    "/usage/rates/new/",
    "/usage/threshold/",
    "/credentials/",
    "/notices/",
    "/settings/notices/",
    "/settings/notices/new/",
    "/settings/vaults/",
    "/settings/vaults/new/",
    "/settings/access/",
    "/settings/access/new/",
    "/settings/access/explain/",
    "/settings/audit/",
    "/settings/account/",
    "/settings/people/",
    "/settings/people/invite/",
    "/settings/people/groups/",
    "/settings/people/groups/new/",
    "/settings/service-accounts/",
    "/settings/service-accounts/new/",
    "/settings/second-factor/",
    "/settings/tenants/",
    "/settings/tenants/new/",
    "/settings/identity/",
    "/settings/identity/new/",
    "/settings/identity/new/keycloak/",
    "/settings/identity/new/duo/",
    "/settings/identity/log-in/",
    "/nowhere/",
)
Scheme = Literal["light", "dark"]
# In the dark only colours differ.
RULES: dict[Scheme, list[str]] = {
    "light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    "dark": ["color-contrast", "link-in-text-block"],
}
# Colours that are still on their way to the other scheme are nobody's.
END_TRANSITIONS = """document.getAnimations()
  .filter(one => one instanceof CSSTransition).forEach(one => one.finish())"""
# Nothing is reported of checks that pass: that takes as long as the checks.
RUN = """rules => axe.run(document, {
  runOnly: rules, resultTypes: ["violations"], selectors: false, preload: false})"""
# What asks for something that this page has no place for does nothing when it is pressed.
AIMLESS = """[...document.querySelectorAll("[hx-target^='#']")]
  .map(one => one.getAttribute("hx-target")).filter(one => !document.querySelector(one))"""
# A page that is wider than its window scrolls sideways.
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"


def violations(page: Page, axe: str) -> list[str]:
    """What axe finds against WCAG 2.2 AA, light and dark, as one line each."""
    # As a tool of the browser, not of the page: the page's policy allows no script of ours.
    if not page.evaluate("!!window.axe"):
        page.evaluate(axe)
    lines = []
    for scheme, rules in RULES.items():
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html")).to_have_attribute("data-theme", scheme)
        page.evaluate(END_TRANSITIONS)
        found = page.evaluate(RUN, rules)
        lines += [
            f"{page.url}: {scheme}: {one['id']}: {node['html'][:160]}"
            for one in found["violations"]
            for node in one["nodes"]
        ]
    return lines


def details(page: Page, site: Installation) -> list[str]:
    """Addresses of a policy in both modes, a queue, a node, a waiting and a running task, a person,
    a group and a pool.
    """
    links = []
    lists = (
        ("/policies/", "policies"),
        ("/queues/", "queues"),
        ("/nodes/", "nodes"),
        ("/tasks/?view=waiting", "tasks"),
        ("/tasks/?view=running", "tasks"),
        ("/settings/people/", "settings/people"),
        ("/settings/people/groups/", "settings/people/groups"),
    )
    for path, kind in lists:
        page.goto(site.address + path)
        link = page.locator(f"tbody a[href^='/{kind}/']").first
        links.append(link.get_attribute("href") or "")
    page.goto(f"{site.address}/settings/resources/")
    pool = page.locator(".pool-card h3 a").first.get_attribute("href") or ""
    return [links[0], f"{links[0]}edit/", *links[1:], pool]
