"""What a job changes of the run whose checkpoint it goes on from."""

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs import resume
from tests.plan.conftest import ROOT, changed

CPT = "megatron-cpt-techpulse"
SCHEDULE = "the job file's schedule holds"


def job_of(name, changes):
    """Return a shipped job with changes of its text."""
    text = changed((ROOT / "jobs" / f"{name}.yaml").read_text(), changes)
    job, findings = parse_job(read_mapping(text, "job.yaml"))
    assert job is not None, findings
    return job


def extra(*words):
    """Return the change that adds further arguments."""
    return {"training:\n": f"extra_args: {list(words)}\ntraining:\n"}


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        (CPT, {}, {}),
        (CPT, {"interval: 500": "interval: 250"}, {}),
        (
            CPT,
            {"train_iters: 10000": "train_iters: 20000"},
            {
                "training.train_iters": (True, "goes on"),
                "training.decay_iters": (True, "decay_iters: 10000 keeps the one before"),
            },
        ),
        (
            CPT,
            {"train_iters: 10000": "train_iters: 20000\n  decay_iters: 10000"},
            {"training.train_iters": (True, "goes on")},
        ),
        (
            CPT,
            {"lr_schedule: cosine": "lr_schedule: linear"},
            {"training.lr_schedule": (True, SCHEDULE)},
        ),
        (
            CPT,
            {
                "lr_schedule: cosine": "lr_schedule: linear",
                **extra("--use-checkpoint-opt_param-scheduler"),
            },
            {"training.lr_schedule": (True, "checkpoint's schedule holds")},
        ),
        (
            CPT,
            {"model: llama-3.1-8b": "model: llama-3.2-1b"},
            {"model.num_layers": (False, "shapes"), "model.hidden_size": (False, "shapes")},
        ),
        (
            CPT,
            {"learning_rate: 1e-5": "learning_rate: 2e-5"},
            {"training.learning_rate": (False, "found by this rate")},
        ),
        (CPT, extra("--optimizer", "sgd"), {"--optimizer": (False, "another state")}),
        (CPT, extra("--optimizer=adam"), {}),
        (
            "fsdp-llama-2-7b",
            {"max_steps: 100": "max_steps: 200"},
            {"training.max_steps": (True, "goes")},
        ),
    ],
)
def test_changes(name, changes, expected):
    """Each with what becomes of it; what changes nothing of a resume is not told."""
    before = resume.settings(job_of(name, {}))
    found = {each.key: each for each in resume.changes(before, job_of(name, changes))}
    assert expected.keys() <= found.keys()
    assert bool(expected) == bool(found)
    for key, (loads, text) in expected.items():
        assert found[key].loads is loads
        assert text in found[key].text


@pytest.mark.parametrize(
    ("before", "loads"), [((), False), (("--dist-ckpt-optim-fully-reshardable",), True)]
)
def test_another_layout_needs_an_optimizer_that_was_saved_for_it(before, loads):
    """Megatron refuses it at the load otherwise, where nothing can be done about it any more."""
    saved = resume.settings(job_of(CPT, extra(*before) if before else {}))
    wider = {"tensor: 4": "tensor: 8"}
    found = {each.key: each for each in resume.changes(saved, job_of(CPT, wider))}
    assert found["parallelism.tensor"].loads is loads
