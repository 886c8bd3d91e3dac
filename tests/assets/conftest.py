"""A build machine of its own for each test."""

import pytest

from tests.assets.build_machine import Machine


@pytest.fixture
def machine(tmp_path):
    """Return a build machine whose repository is empty."""
    return Machine(tmp_path)
