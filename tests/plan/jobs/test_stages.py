"""How a job tells Megatron which layers have experts."""

import re

import pytest

from megatron_eks.config.job import MegatronJob
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs.arguments import megatron_arguments
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.training import job_layout
from tests.plan.conftest import ROOT

JOB = (ROOT / "examples" / "p5-reservation" / "jobs" / "mixtral-8x7b.yaml").read_text()


@pytest.mark.parametrize(
    ("layers", "word"),
    [("2", "2"), (str([0, 1] * 16), f"[{','.join(['0,1'] * 16)}]")],
)
def test_a_list_has_no_blanks(layers, word):
    """Megatron's `_eval_pattern` refuses every sign but these."""
    model = f"model: {{preset: mixtral-8x7b, moe_layer_freq: {layers}}}"
    job, _ = parse_job(read_mapping(JOB.replace("model: mixtral-8x7b", model), "j.yaml"))
    assert isinstance(job, MegatronJob)
    words = megatron_arguments(job, model_shape(job.model), job_layout(job, 32), "")
    said = words[words.index("--moe-layer-freq") + 1]
    assert said == word
    assert not re.search(r"[^,\d\[\]()+*]", said)
