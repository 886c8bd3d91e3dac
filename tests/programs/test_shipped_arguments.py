"""What the plans of all shipped jobs pass to our programs, before the programs' own parsers.

Megatron's own arguments have a test of their own: test_megatron_parser.py.
"""

from argparse import ArgumentParser
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest

from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.plan.jobs.job import CONFIG_DIRECTORY, JobPlan
from megatron_eks.plan.jobs.validation import plan_validation
from megatron_eks.programs import PROGRAM_OPTIONS
from megatron_eks.programs.program import Finding as ProgramFinding
from megatron_eks.programs.program import Report
from megatron_eks.programs.trainer.config import read_config
from megatron_eks.programs.trainer.shape import read_model
from megatron_eks.project import ROOT, load_project
from tests import examples

TRAINERS = {"train_fsdp", "train_ddp"}
ELSEWHERE = {"train_megatron"}


@pytest.fixture(scope="module")
def plans(tmp_path_factory) -> dict[str, JobPlan]:
    """Plan every job of the default cluster and of the examples, and the tests of every pool."""
    folder = tmp_path_factory.mktemp("examples")
    files = {name: examples.copy(name, folder / name) for name in examples.NAMES}
    found: dict[str, JobPlan] = {}
    for name, cluster in {"default": ROOT / "cluster.yaml", **files}.items():
        project = load_project(cluster, datetime.now(tz=UTC).date())
        tests = plan_validation(project.cluster, project.outputs.images)
        found |= {f"{name}/{job.name}": job for job in (*project.jobs, *tests)}
    return found


def program(job: JobPlan) -> str:
    """Return the name of the program that a job runs."""
    return job.program[-1].rpartition(".")[2]


def test_every_program_is_known(plans):
    """The guard of arguments knows what it needs, and the self-tests of images start it."""
    assert {program(job) for job in plans.values()} <= PROGRAM_OPTIONS.keys()


class _ReadError(BaseException):
    """A command line has been read."""


def test_arguments_are_the_parsers_own(plans, monkeypatch):
    """Argparse ends the process where it meets an option that it does not know."""
    checked: set[str] = set()
    read = ArgumentParser.parse_args

    def read_and_stop(parser, words):
        read(parser, words)
        raise _ReadError

    monkeypatch.setattr(ArgumentParser, "parse_args", read_and_stop)
    for name, job in plans.items():
        if program(job) in TRAINERS | ELSEWHERE:
            continue
        module = import_module(f"{PACKAGE}.{program(job)}")
        if hasattr(module, "__path__"):
            module = import_module(f"{module.__name__}.__main__")
        try:
            module.main(job.args, Report())
        except _ReadError:
            checked.add(program(job))
        except SystemExit:
            pytest.fail(f"{name}: {program(job)} {' '.join(job.args)}")
    assert len(checked) > len(TRAINERS)


def test_configurations_are_the_trainers_own(plans, tmp_path):
    """Every key and value of the files that FSDP and DDP jobs mount."""
    trained = {name: job for name, job in plans.items() if program(job) in TRAINERS}
    assert len(trained) > len(TRAINERS)
    for name, job in trained.items():
        findings: list[ProgramFinding] = []
        config = read_config(config_of(job, tmp_path), findings)
        assert config is not None, (name, findings)
        base = config.checkpoint.pretrained is not None
        assert read_model(config.model, base_weights=base, findings=findings), name
        assert findings == [], name


def config_of(job: JobPlan, folder: Path) -> Path:
    """Write the file that `--config` names, as it is mounted."""
    mounted = Path(job.args[job.args.index("--config") + 1])
    assert str(mounted.parent) == CONFIG_DIRECTORY
    content = job.files[mounted.name]
    file = folder / mounted.name
    file.write_text(content if isinstance(content, str) else content.decode())
    return file
