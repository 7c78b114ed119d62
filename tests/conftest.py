"""Fixtures of every test; services are in tests/services/."""

import os

import pytest
from django.conf import settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.nvml.driver import stub_driver, stub_library
from tests.people import alice, api_as, bob, charlie, quinn
from tests.services.browser import chromium, new_page, page
from tests.services.cdi import cdi_devices
from tests.services.database_flush import flush_guarded_tables
from tests.services.databases import database_url
from tests.services.migrated_database import django_db_modify_db_settings
from tests.services.mps import mps_control
from tests.services.podman import podman
from tests.services.process_caches import fresh_caches, one_long_minute, whole_steps
from tests.services.smtp import inbox
from tests.services.sshd import ssh_node, start_ssh_node
from tests.shared_example import (
    dev_group,
    example,
    own_example,
    research_group,
    root,
    share_examples,
    shared_example,
)
from tests.tenants import organisations

# On a busy machine everything is slow, and that says nothing about the code.
hypothesis_settings.register_profile(
    "suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
if hypothesis_settings.get_current_profile_name() in ("default", "ci"):
    hypothesis_settings.load_profile("suite")

__all__ = [
    "alice",
    "api_as",
    "bob",
    "cdi_devices",
    "charlie",
    "chromium",
    "database_url",
    "dev_group",
    "django_db_modify_db_settings",
    "example",
    "flush_guarded_tables",
    "fresh_caches",
    "inbox",
    "mps_control",
    "new_page",
    "one_long_minute",
    "organisations",
    "own_example",
    "page",
    "podman",
    "quinn",
    "research_group",
    "root",
    "shared_example",
    "ssh_node",
    "start_ssh_node",
    "stub_driver",
    "stub_library",
    "whole_steps",
]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that this file reads."""
    config.addinivalue_line("markers", "postgres_only: SQLite has no such thing; left out there")
    # Processes of tests run as the user who runs the tests, who need not be root.
    settings.ALLOW_OWN_ACCOUNT = True
    # Otherwise each client of a test lists all static files when it sends its first request.
    settings.WHITENOISE_AUTOREFRESH = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that SQLite cannot run, and let the others share what is long in the making."""
    # These options change the order afterwards: each test then makes what it asks for.
    if not any(config.getoption(name, default=False) for name in ("failedfirst", "newfirst")):
        share_examples(items)
    if os.environ.get("RPM_TEST_DATABASE") != "postgres":
        left_out = [item for item in items if item.get_closest_marker("postgres_only")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
