"""What Megatron's own parser and validation say to the arguments of every shipped job."""

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import pytest

from megatron_eks.ops.planning.megatron import Megatron
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.project import ROOT, load_project

pytestmark = pytest.mark.programs

CLUSTERS = sorted([ROOT / "cluster.yaml", *ROOT.glob("examples/*/cluster.yaml")])
TODAY = dt.date(2026, 11, 1)
KINDS = {"Ampere": (8, 0), "Hopper": (9, 0), "Blackwell": (10, 0)}


@dataclass(frozen=True)
class Asked:
    """Arguments, and the GPUs that they are for."""

    words: Sequence[str]
    ranks: int
    capability: tuple[int, int]
    environment: Mapping[str, str]

    def with_words(self, more: str) -> "Asked":
        """Return the same with further arguments."""
        return replace(self, words=[*self.words, *more.split()])


def answers(questions: Sequence[Asked]) -> list[str | None]:
    """Return what Megatron has against each, in one start of it."""
    with closing(Megatron()) as megatron:
        found = [megatron.ask(astuple(each)) for each in questions]
        assert not megatron.not_asked
    return found


def megatron_jobs(cluster_file: Path) -> list[JobPlan]:
    """Return the plans of the jobs that run Megatron-LM."""
    return [job for job in load_project(cluster_file, TODAY).jobs if job.kind == "megatron"]


def asked(job: JobPlan) -> Asked:
    """Return what a job asks of Megatron."""
    assert job.pool is not None
    instance = job.pool.instance
    words = job.args[job.args.index("--") + 1 :]
    ranks = job.nodes * instance.gpus
    return Asked(words, ranks, instance.gpu.compute_capability, dict(job.env))


# Appended to the default job, 16 A100 with tensor parallel size 4, as `extra_args` are: what
# tests/config has in its own words is asked in test_megatron_options.py.
REFUSED = {
    "--no-such-option": "unrecognized arguments: --no-such-option",
    "--make-vocab-size-divisible-by few": "invalid int value: 'few'",
    "--tensor-model-parallel-size 3": "world size (16) is not divisible by",
    "--init-method-xavier-uniform": "unexpected keyword argument",
    "--squared-relu": "AssertionError",
    "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 6": "26 must be",
}
ACCEPTED = (
    "--exit-duration-in-mins 60 --log-params-norm",
    "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*7|(t*9|)*2t*7,L",
)


@pytest.fixture(scope="module")
def shipped() -> dict[str, Asked]:
    """Return what each job file of the repository and the examples asks, by name."""
    return {
        f"{file.parent.name}/{job.name}": asked(job)
        for file in CLUSTERS
        for job in megatron_jobs(file)
    }


@pytest.fixture(scope="module")
def found(shipped: dict[str, Asked]) -> dict[str, str | None]:
    """Return what Megatron has against each job and each change below, by name."""
    default = shipped[f"{ROOT.name}/megatron-cpt-techpulse"]
    changed = {more: default.with_words(more) for more in (*ACCEPTED, *REFUSED)}
    bare = replace(default, environment={})
    kinds = {name: replace(bare, capability=each) for name, each in KINDS.items()}
    questions = {**shipped, **changed, **kinds}
    return dict(zip(questions, answers(list(questions.values())), strict=True))


def test_every_shipped_job_is_accepted(shipped, found):
    """Each for the number and the kind of GPUs that it is for, in the repository and examples."""
    assert len(shipped) >= 9
    assert {question.capability[0] for question in shipped.values()} >= {8, 9, 10}
    assert {name: found[name] for name in shipped} == dict.fromkeys(shipped)


def test_good_extra_arguments_are_accepted(found):
    """What a job file may add to the arguments of the plan."""
    assert {more: found[more] for more in ACCEPTED} == dict.fromkeys(ACCEPTED)


@pytest.mark.parametrize("more", REFUSED)
def test_mistakes_are_refused(found, more):
    """So the tests above can fail: by an option's name, its value, or how several fit together."""
    assert REFUSED[more] in (found[more] or "accepted")


def test_architecture_decides(found):
    """Without the plan's variable tensor parallelism is refused up to Hopper, not on Blackwell."""
    variable = "CUDA_DEVICE_MAX_CONNECTIONS"
    assert [variable in (found[name] or "") for name in KINDS] == [True, True, False]
    assert found["Blackwell"] is None
