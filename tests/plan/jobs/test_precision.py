"""FP8 against the GPU and against the shapes that Transformer Engine asserts."""

import pytest

from megatron_eks.config.job import MegatronJob
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.jobs.arguments import megatron_arguments
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.table import check_job
from megatron_eks.plan.jobs.training import job_layout
from tests.plan.conftest import ROOT

RUN = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
CLUSTER = (ROOT / "cluster.yaml").read_text()


def findings(old: str, new: str, kind: str = "p5.48xlarge") -> list[str]:
    """Check an FP8 run with one more change."""
    text = CLUSTER.replace("p4d.24xlarge", kind)
    cluster, _ = parse_cluster(read_mapping(text, "c.yaml"))
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


@pytest.mark.parametrize(
    ("kind", "recipe", "said"),
    [
        ("p5.48xlarge", "mxfp8", ["H100 80GB HBM3 has no units for mxfp8"]),
        ("p5.48xlarge", "blockwise", []),
        ("p6-b200.48xlarge", "mxfp8", []),
        ("g6e.48xlarge", "blockwise", ["L40S has no units for blockwise"]),
        ("g6e.48xlarge", "tensorwise", []),
        ("g7e.48xlarge", "mxfp8", ["RTX PRO 6000 has no units for mxfp8"]),
        ("g7e.48xlarge", "blockwise", []),
    ],
)
def test_recipes_need_their_units(kind, recipe, said):
    """As Transformer Engine asks the GPU for them, and told once."""
    job = findings("pool: p4d", f"pool: p4d\nextra_args: [--fp8-recipe={recipe}]", kind)
    found = [line for line in job if line.startswith("MEKS-0314")]
    assert found == [f"MEKS-0314 {recipe}: {each}" for each in said]


@pytest.mark.parametrize(("kind", "refused"), [("p5.48xlarge", 1), ("p6-b200.48xlarge", 0)])
def test_a_precision_of_blackwell(kind, refused):
    """Named as the job's precision, it is refused where the recipe is."""
    found = findings("precision: ", "precision: mx", kind)
    assert len([line for line in found if "MEKS-0314" in line]) == refused


def test_blocks_of_32():
    """MXFP8 scales 32 values together, where other recipes are content with 16."""
    old, new = "llama-3.1-8b\np", "{preset: llama-3.1-8b, ffn_hidden_size: 14400}\np"
    assert findings(old, new, "p6-b200.48xlarge") == []
    fine = f"{new.removesuffix('p')}extra_args: [--fp8-recipe, mxfp8]\np"
    (line,) = findings(old, fine, "p6-b200.48xlarge")
    assert line.endswith("ffn_hidden_size is 3600 on each GPU, and MXFP8 needs multiples of 32")


@pytest.mark.parametrize(
    ("more", "form"),
    [
        ("[]", "hybrid"),
        ("[--fp8-recipe, tensorwise]", "hybrid"),
        ("[--fp8-recipe, mxfp8]", "e4m3"),
        ("[--fp8-recipe=mxfp8]", "e4m3"),
    ],
)
def test_gradients_of_mxfp8_keep_their_precision(more, form):
    """With E5M2 such runs diverge."""
    text = RUN.replace("precision: bf16", "precision: fp8") + f"\nextra_args: {more}\n"
    job, _ = parse_job(read_mapping(text, "j.yaml"))
    assert isinstance(job, MegatronJob)
    words = megatron_arguments(job, model_shape(job.model), job_layout(job, 16), "")
    assert words[words.index("--fp8-format") + 1] == form


EXPERTS = "num_experts: 8, moe_router_topk: 2"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("moe_ffn_hidden_size: 1416", ["MEKS-0314 moe_ffn_hidden_size is 354 on each GPU"]),
        ("moe_ffn_hidden_size: 1408", []),
        # Without a dense layer nothing has the other width.
        ("moe_ffn_hidden_size: 1408, ffn_hidden_size: 14368", []),
        (
            f"moe_ffn_hidden_size: 1408, ffn_hidden_size: 14368, moe_layer_freq: {[0] + [1] * 31}",
            ["MEKS-0314 ffn_hidden_size is 3592 on each GPU"],
        ),
    ],
)
def test_experts_have_a_width_of_their_own(sizes, said):
    """Dense layers are divided over the tensor ranks, and experts by their own number."""
    model = f"{{preset: llama-3.1-8b, {EXPERTS}, {sizes}}}\np"
    lines = [line for line in findings("llama-3.1-8b\np", model) if line.startswith("MEKS-0314")]
    assert [line.partition(", and")[0] for line in lines] == said
