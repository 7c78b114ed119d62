"""Pages that have something to warn of: pools that drift, and a database that was restored."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation
from tests.services.browser import DESKTOP, PHONE, NewPage

WRONG = """
from django.utils import timezone
from apps.nodes.models import Device, Installation, Node
from apps.policies.models import Pool

Installation.objects.filter(id=1).update(restored_at=timezone.now())
node = Node.objects.filter(pool__isnull=False).order_by("pk")[0]
Node.objects.filter(pk=node.pk).update(unknown_work=1)
Pool.objects.filter(pk=node.pool_id).update(capacity={"gpu": "12"})
Device.objects.filter(node=node, index__gte=4).update(model="NVIDIA A100-SXM4-80GB")
"""
RIGHT = """
from apps.nodes.models import Device, Installation, Node
from apps.policies.models import Pool

Installation.objects.filter(id=1).update(restored_at=None)
node = Node.objects.filter(pool__isnull=False).order_by("pk")[0]
Node.objects.filter(pk=node.pk).update(unknown_work=0)
Pool.objects.filter(pk=node.pool_id).update(capacity={"gpu": "8"})
first = Device.objects.filter(node=node, index=0).get()
Device.objects.filter(node=node).update(model=first.model)
"""


@pytest.fixture
def wrong(site: Installation) -> Iterator[Installation]:
    site.manage("shell", "-c", WRONG)
    yield site
    site.manage("shell", "-c", RIGHT)


def test_warnings_are_readable_and_fit_on_a_phone(
    wrong: Installation, sign_in: SignIn, new_page: NewPage, axe: str
) -> None:
    found = []
    for size in (DESKTOP, PHONE):
        page = new_page(size=size)
        sign_in(page, "admin")
        for path in ("/", "/settings/resources/", "/nodes/"):
            page.goto(wrong.address + path)
            if path != "/nodes/":
                expect(page.get_by_text("Configured 12 GPU, nodes have 8 GPU")).to_be_visible()
            if path != "/settings/resources/":
                expect(page.get_by_text("rpmctl confirm-restored")).to_be_visible()
            found += violations(page, axe)
            if page.evaluate(OVERFLOW) > 0:
                found.append(f"{path} is wider than the window")

    assert found == []
