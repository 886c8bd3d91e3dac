"""The table of Megatron-Bridge's configuration, against its source and against what we set."""

import subprocess

import pytest

from megatron_eks.catalog.bridge_fields import ARCHITECTURES, FIELDS, VERSION
from megatron_eks.catalog.job_keys import PLANNED
from megatron_eks.programs.start import bridge_config
from megatron_eks.project import ROOT
from tests.programs.bridge_job import JOB
from tests.programs.prepare_files import PYTHON

GENERATOR = ROOT / "tests/upstream/bridge_fields.py"
# Pairs and words for objects, which only the program makes.
NOT_IN_A_FILE = {"dataset.blend"}


def test_it_is_of_the_version_that_the_tests_run():
    """A new pin needs a new table: see the generator's own words."""
    assert f"megatron-bridge=={VERSION} " in (ROOT / "requirements/bridge.txt").read_text()


def test_every_place_of_a_jobs_values_is_a_field_of_its_kind():
    """What the program sets is checked there against the recipe; a slip would end every job."""
    job = {**JOB, "data": {**JOB["data"], "cache_dir": "/x"}}
    job["training"] = {**JOB["training"], "decay_iters": 5, "recompute_layers": 1}
    values = bridge_config.values_of(job)
    for name, value in values.items():
        block, _, field = name.partition(".")
        if field and name not in NOT_IN_A_FILE:
            kinds = FIELDS[block][field].kinds
            assert value is None or type(value).__name__ in kinds or kinds >= {"float"}, name


def test_what_the_plan_sets_is_a_field():
    """Else nobody could override it, and nobody would be told."""
    for name in PLANNED:
        block, _, field = name.partition(".")
        assert block in FIELDS if not field else field in FIELDS[block], name


def test_words_are_known_where_only_some_are_taken():
    """Literals and enumerations of the source alike."""
    assert FIELDS["model"]["attention_backend"].choices == (
        "auto",
        "flash",
        "fused",
        "local",
        "unfused",
    )
    assert "cosine" in FIELDS["scheduler"]["lr_decay_style"].choices
    assert "LlamaForCausalLM" in ARCHITECTURES


@pytest.mark.oracle
@pytest.mark.programs
def test_it_is_what_the_source_says():
    """The committed table is the generator's output with the pinned packages."""
    done = subprocess.run(  # noqa: S603 -- our own script
        [PYTHON, GENERATOR], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "megatron_eks/catalog/bridge_fields.txt").read_text()
