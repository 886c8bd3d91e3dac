"""What properties of stacks need."""

from pathlib import Path

import pytest

from tests.stacks.synthesis import write_sources


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that images are built from."""
    return write_sources(tmp_path_factory.mktemp("sources") / "assets")
