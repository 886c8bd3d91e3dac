"""A job's directories, ready to train."""

from pathlib import Path

import pytest

from tests.programs import prepare_files
from tests.programs.megatron_files import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job on good data that has saved nothing yet."""
    return Job(tmp_path)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tokenizer that was trained for these tests."""
    folder = tmp_path_factory.mktemp("tokenizer")
    prepare_files.python(prepare_files.TRAIN, folder, prepare_files.BOS, prepare_files.EOD)
    return folder
