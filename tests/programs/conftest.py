"""A job's directories, ready to train; the programs' Python; an S3 that can fail."""

from collections.abc import Callable
from pathlib import Path

import pytest

from megatron_eks.programs import checkpoint_sync, s3_store
from megatron_eks.project import ROOT
from tests.programs import prepare_files, s3_world, saved
from tests.programs.megatron_files import Job
from tests.programs.run_program import Ended
from tests.programs.s3_world import World, s3, s3_server
from tests.programs.sync_pair import Pair
from tests.programs.trainer_files import Run

__all__ = ["s3", "s3_server"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job on good data that has saved nothing yet."""
    return Job(tmp_path)


@pytest.fixture(scope="session")
def trained(programs_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """Return a run of train_fsdp on two ranks that nothing disturbed, and its stdout."""
    run = Run(tmp_path_factory.mktemp("trained"), programs_python)
    done = run.run(2)
    assert done.returncode == 0, done.stderr
    return run, done.stdout


@pytest.fixture(scope="session")
def programs_python() -> Path:
    """Return the interpreter with torch and Megatron core; for tests marked `programs`."""
    python = ROOT / ".venv-programs" / "bin" / "python"
    if not python.exists():
        pytest.fail(f"{python} is not there - run `make programs`")
    return python


@pytest.fixture
def sync(s3: World, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs checkpoint_sync; it waits less between attempts than in life."""
    assert s3.proxy.requests == []
    monkeypatch.setattr(s3_store, "_PAUSE_SECONDS", 0.01)
    return lambda *words: s3_world.call("checkpoint_sync", checkpoint_sync.main, *words)


@pytest.fixture
def pair(sync: Callable[..., Ended], s3: World, tmp_path: Path) -> Pair:
    """Return two machines and the S3 between them; a training on one has saved once."""
    saved.megatron(tmp_path / "near", 500, size=200_000)
    return Pair(sync, s3, tmp_path / "near", tmp_path / "far")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tokenizer that was trained for these tests."""
    folder = tmp_path_factory.mktemp("tokenizer")
    prepare_files.python(prepare_files.TRAIN, folder, prepare_files.BOS, prepare_files.EOD)
    return folder
