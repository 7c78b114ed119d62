"""From a row of the admin site one comes to the page that shows it."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.nodes.models import Node
from apps.policies.models import DraftPool, DraftProfile
from apps.tasks.models import Task
from tests.configuration.site import url
from tests.people import Example

pytestmark = pytest.mark.django_db

LINK = re.compile(r'href="(/[^"]*)"[^>]*>\s*(?:<[^>]*>\s*)*open_in_new')


def test_every_row_that_has_a_page_leads_to_it(root: User, example: Example) -> None:
    site, now = Client(), timezone.now()
    site.force_login(root)
    rows = [
        example.dev,
        example.dev_queue,
        example.h100,
        example.profile,
        DraftPool.objects.earliest("pk"),
        DraftProfile.objects.earliest("pk"),
        Revision.objects.earliest("pk"),
        Node.objects.create(name="n1", pool=example.h100),
        Task.objects.create(name="train", owner=root, created_at=now, changed_at=now),
    ]

    for row in rows:
        shown = site.get(url(type(row), "change", row.pk)).content.decode()
        found = LINK.search(shown)
        assert found is not None, row
        page = site.get(found[1])
        assert page.status_code == 200
        assert str(getattr(row, "name", getattr(row, "number", ""))) in page.content.decode()
