"""The command line of Megatron-LM, where a job file adds to it."""

from megatron_eks.config.job import MegatronJob
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs.arguments import megatron_arguments
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.training import job_layout
from tests.config.test_job_errors import GOOD


def test_a_choice_takes_the_place_of_a_default():
    """What the job file says stands once, at the end, in whatever form it is written."""
    more = "extra_args: [--attention-backend, flash, --log-throughput, --manual-gc-interval=50]"
    job, _ = parse_job(read_mapping(f"{GOOD}\n{more}\n", "j.yaml"))
    assert isinstance(job, MegatronJob)
    words = megatron_arguments(job, model_shape(job.model), job_layout(job, 16), "/shared/logs")
    assert words[-4:] == (
        "--attention-backend",
        "flash",
        "--log-throughput",
        "--manual-gc-interval=50",
    )
    for name in ("--attention-backend", "--log-throughput", "--manual-gc-interval"):
        assert sum(word.partition("=")[0] == name for word in words) == 1
