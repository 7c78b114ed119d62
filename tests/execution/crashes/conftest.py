"""The whole matrix runs only where it is asked for, as the long run of tests/chaos does."""

from tests.chaos.conftest import pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]
