"""A job's directories, ready to train."""

from pathlib import Path

import pytest

from tests.programs.megatron_files import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job on good data that has saved nothing yet."""
    return Job(tmp_path)
