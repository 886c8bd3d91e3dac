"""FP8 against the GPU and against the shapes that Transformer Engine asserts."""

from pathlib import Path

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.jobs.table import check_job

ROOT = Path(__file__).parents[2]
RUN = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
H100 = (ROOT / "cluster.yaml").read_text().replace("p4d.24xlarge", "p5.48xlarge")


def findings(old: str, new: str) -> list[str]:
    """Check an FP8 run on H100 with one more change."""
    cluster, _ = parse_cluster(read_mapping(H100, "c.yaml"))
    assert cluster is not None
    assert old in RUN
    text = RUN.replace("precision: bf16", "precision: fp8").replace(old, new)
    job, found = parse_job(read_mapping(text, "j.yaml"))
    assert not found
    assert job is not None
    return [f"{each.code} {each.found}" for each in check_job(job, cluster)]


def test_llama_is_computed_in_fp8():
    """All its matrices divide by 16."""
    assert findings("tensor: 4", "tensor: 4") == []


@pytest.mark.parametrize(
    ("old", "new", "size"),
    [
        ("llama-3.1-8b\np", "{preset: llama-3.1-8b, hidden_size: 4104}\np", "hidden_size is 4104"),
        (
            "llama-3.1-8b\np",
            "{preset: llama-3.1-8b, ffn_hidden_size: 14368}\np",
            "ffn_hidden_size is 3592",
        ),
        (
            "llama-3.1-8b\np",
            (
                "{preset: llama-3.1-8b, num_attention_heads: 12, num_query_groups: 4, "
                "kv_channels: 72}\np"
            ),
            "the width of queries, keys and values is 360",
        ),
        ("sequence_length: 4096", "sequence_length: 4092", "the number of tokens is 4092"),
    ],
)
def test_what_does_not_divide_by_16(old, new, size):
    """Each matrix is named with the size that a rank has of it."""
    (line,) = findings(old, new)
    assert line == f"MEKS-0314 {size} on each GPU, and FP8 needs multiples of 16"
