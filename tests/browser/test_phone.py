"""Lists on a phone, with names and sentences as long as they get."""

import pytest

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW
from tests.end_to_end.installation import Installation
from tests.services.browser import DESKTOP, PHONE, NewPage

LONG_POLICY = """
from django.contrib.auth.models import Group
from apps.configuration.services.policies import policy_create
from apps.configuration.services.queues import profile_connect
from apps.policies.models import Profile
policy = policy_create(
    actor=None,
    name="A Biomedical Imaging: Data Preparation and Curation",
    group=Group.objects.get(name="demo-dev"),
)
profile_connect(actor=None, policy=policy, profile=Profile.objects.get(name="2xGPU"))
"""
# A node whose key the server lacks: also what the worker says of it is one long word.
REFUSED = "a-node-of-the-second-hall.cluster.example.org"
KEY = "/" + "k" * 80
REFUSED_NODE = f"""
from apps.nodes.models import Node
Node.objects.create(
    name="{REFUSED}", address="192.0.2.1", transport="ssh", state="refused", key_path="{KEY}",
    state_detail="the private key {KEY} cannot be read: No such file or directory",
)
"""
GONE = f"""
from apps.nodes.models import Node
Node.objects.filter(name="{REFUSED}").delete()
"""


LONG = "pretraining-of-a-model-" * 8 + "seed-41"
LONG_TASK = f"""
from apps.tasks.models import Task
active = Task.objects.filter(state__in=["queued", "running"]).first()
Task.objects.filter(pk=active.pk).update(name="{LONG}")
"""


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_end_of_a_long_task_name_is_seen_in_the_list(
    site: Installation, sign_in: SignIn, new_page: NewPage, size: tuple[int, int]
) -> None:
    site.manage("shell", "--command", LONG_TASK)
    page = new_page(size=size)
    sign_in(page, "admin")

    page.goto(f"{site.address}/tasks/")

    name = page.get_by_role("link", name="seed-41").first
    assert name.evaluate("one => one.scrollWidth <= one.clientWidth && one.offsetHeight > 30")
    assert page.evaluate(OVERFLOW) <= 0


def test_long_names_leave_a_queue_readable_on_a_phone(
    site: Installation, sign_in: SignIn, new_page: NewPage
) -> None:
    site.manage("shell", "--command", LONG_POLICY)
    page = new_page(size=PHONE)
    sign_in(page, "admin")

    page.goto(f"{site.address}/queues/")

    name = page.locator("tbody .qname").first.bounding_box()
    row = page.locator("tbody tr").first.bounding_box()
    assert name is not None
    assert row is not None
    assert name["width"] > 100
    assert row["height"] < 120
    assert page.evaluate(OVERFLOW) <= 0


def test_a_refused_node_leaves_its_link_readable_on_a_phone(
    site: Installation, sign_in: SignIn, new_page: NewPage
) -> None:
    site.manage("shell", "--command", REFUSED_NODE)
    page = new_page(size=PHONE)
    sign_in(page, "admin")

    page.goto(f"{site.address}/nodes/")

    row = page.locator("tbody tr", has_text="kkkk").first
    link, detail = (
        row.get_by_role("link"),
        row.get_by_text("cannot be read").locator("visible=true"),
    )
    above, below, around = link.bounding_box(), detail.bounding_box(), row.bounding_box()
    site.manage("shell", "--command", GONE)
    assert above is not None
    assert below is not None
    assert around is not None
    assert above["y"] + above["height"] <= below["y"]
    assert below["x"] + below["width"] <= around["x"] + around["width"]
    # Nothing lies over the link.
    link.click(trial=True)
    assert page.evaluate(OVERFLOW) <= 0
