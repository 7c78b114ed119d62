"""What every test can ask for; services live in tests/services/."""

import os

import pytest
from django.conf import settings

from tests.cast import (
    alice,
    api_as,
    bob,
    charlie,
    dev_group,
    example,
    quinn,
    research_group,
    root,
)
from tests.nvml.driver import stub_driver, stub_library
from tests.services.browser import chromium, new_page, page
from tests.services.cdi import cdi_devices
from tests.services.counting import fresh_counts
from tests.services.databases import database_url
from tests.services.flushing import flush_guarded_tables
from tests.services.mps import mps_control
from tests.services.podman import podman
from tests.services.smtp import inbox
from tests.services.sshd import ssh_node, start_ssh_node
from tests.tenants import organisations

__all__ = [
    "alice",
    "api_as",
    "bob",
    "cdi_devices",
    "charlie",
    "chromium",
    "database_url",
    "dev_group",
    "example",
    "flush_guarded_tables",
    "fresh_counts",
    "inbox",
    "mps_control",
    "new_page",
    "organisations",
    "page",
    "podman",
    "quinn",
    "research_group",
    "root",
    "ssh_node",
    "start_ssh_node",
    "stub_driver",
    "stub_library",
]


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker that this file understands."""
    config.addinivalue_line("markers", "postgres_only: SQLite has no such thing; left out there")
    # Processes of tests run as whoever runs the tests, who need not be root.
    settings.ALLOW_OWN_ACCOUNT = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what SQLite cannot do."""
    if os.environ.get("RPM_TEST_DATABASE") != "postgres":
        left_out = [item for item in items if item.get_closest_marker("postgres_only")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
