"""Arguments of jobs: programs and options."""

import pytest

from megatron_eks.catalog.program_options import PROGRAM_OPTIONS
from megatron_eks.config.codes import Code
from megatron_eks.project import ROOT
from tests.guards.slips import ABSENT, in_manifest

_FETCH = "Job/fetch-tokenizer"
_BOX = "spec template spec containers 0"
_CONFIG = "ConfigMap/ddp-llama-3-2-1b-5fb41d77"
_JOB = "PyTorchJob/megatron-gpt-7b"
_ARGS = "spec pytorchReplicaSpecs Master template spec containers 0 args"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_FETCH, f"{_BOX} command 1", "/opt/megatron-eks/programs/fetsh.py", Code.TRAINING_FLAG),
        (_FETCH, f"{_BOX} command 0", "torchrun", Code.TRAINING_FLAG),
        (_FETCH, f"{_BOX} args 0", "--tokeniser", Code.TRAINING_FLAG),
        (_FETCH, f"{_BOX} args", ABSENT, Code.TRAINING_FLAG),
        ("Job/efa-check-p4d", f"{_BOX} args 1", "8", Code.EXTENDED_RESOURCES),
        (_CONFIG, "data train_ddp.json", '{"model": ', Code.MISSING_OBJECT),
        (_CONFIG, "immutable", ABSENT, Code.REPLICAS_DIFFER),
        (_JOB, _ARGS, lambda old: [*old, "--hiden-size"], Code.TRAINING_FLAG),
        (_JOB, _ARGS, lambda old: [*old, "--bf16", "true"], Code.TRAINING_FLAG),
        (_JOB, _ARGS, lambda old: [e for e in old if e != "--"], Code.TRAINING_FLAG),
    ],
)
def test_a_wrong_argument_is_reported(name, path, value, code):
    """A program that stops at its start stops when the nodes are paid for."""
    assert code.name in in_manifest(name, path, value)


def test_other_arguments_are_right():
    """Options that a program has are the user's to choose."""
    assert in_manifest(_FETCH, f"{_BOX} args", lambda old: [*old, "--revision", "main"]) == set()


def test_the_options_are_those_of_the_programs():
    """Each option stands in the sources of the programs."""
    sources = "".join(each.read_text() for each in (ROOT / "assets" / "programs").glob("*.py"))
    for program, options in PROGRAM_OPTIONS.items():
        assert (ROOT / "assets" / "programs" / program).is_file()
        assert [e for e in options.split() if f'"{e.rstrip("=!")}"' not in sources] == []
