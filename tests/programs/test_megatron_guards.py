"""What ends a job of the real Megatron before it costs the time of importing torch."""

import pytest

from tests.programs.megatron_run import MegatronRun, prepare

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def run(tmp_path_factory, tokenizer) -> MegatronRun:
    """Return a job that could start."""
    root = tmp_path_factory.mktemp("guards")
    return MegatronRun(root / "job", prepare(root, tokenizer), tokenizer)


@pytest.mark.parametrize("wrong", ["data", "tokenizer", "pretrained"])
def test_refused_before_torch_is_imported(run, wrong):
    """A path that is not there ends the job by the guard, with its path and what to do."""
    missing = run.root / "missing"
    other = run.another(f"wrong-{wrong}")
    setattr(other, wrong, missing)
    done = other.alone(PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 4
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("error ")]
    assert str(missing) in said
    imported = {
        line.rpartition("|")[2].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "megatron_eks.programs.start.preconditions" in imported
    assert not imported & {"torch", "megatron", "numpy"}
