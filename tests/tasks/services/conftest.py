"""What tests of the services begin with."""

import pytest

from tests.allocation.state import make_node
from tests.people import Example


@pytest.fixture
def served(example: Example) -> Example:
    make_node(example.bare_metal, name="b1")
    return example
