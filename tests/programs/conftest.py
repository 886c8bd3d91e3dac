"""A job's directories, ready to train, and the Python that the programs run on."""

from pathlib import Path

import pytest

from megatron_eks.project import ROOT
from tests.programs.megatron_files import Job
from tests.programs.trainer_files import Run


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
