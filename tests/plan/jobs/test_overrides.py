"""Overrides in an image of one's own, and those inside a value."""

import pytest

from megatron_eks.config.errors import Level
from megatron_eks.plan.jobs.overrides import check_override
from tests.config.test_job_errors import ROOT, findings


@pytest.mark.parametrize(("image", "level"), [("megatron", Level.ERROR), ("x/y:1", Level.WARNING)])
def test_another_image_may_have_another_version(image, level):
    """What ours refuses may be there; then it is only said."""
    (found,) = check_override(image, "ddp.overlap_grad_reduc", True)  # noqa: FBT003 -- a value
    assert found.level is level


def test_recipe_that_only_another_version_may_have():
    """Ours has none of that name, so that the run ends before it trains."""
    text = BRIDGE.replace("llama31_8b_pretrain_config", "llama3_1_8b_pretrain_config")
    own = text.replace("image: megatron", f"image: registry.example/bridge@sha256:{'a' * 64}")
    assert [line.split()[:2] for line in (*findings(text), *findings(own))] == [
        ["error", "MEKS-0378"],
        ["warning", "MEKS-0399"],
        ["warning", "MEKS-0378"],
    ]


@pytest.mark.parametrize("name", ["peft.canonical_mapping.x", "model.vision_config.depth"])
def test_value_inside_a_value_is_the_recipes(name):
    """Its class is not known before the recipe runs; the program checks it."""
    assert list(check_override("megatron", name, 1)) == []


BRIDGE = (ROOT / "jobs" / "bridge-cpt-techpulse.yaml").read_text()
CLUSTER = (ROOT / "cluster.yaml").read_text()


def written(overrides: str, *changes: tuple[str, str]) -> str:
    """Return the shipped Bridge job with overrides."""
    text = BRIDGE.replace("overrides: {}", f"overrides: {{{overrides}}}")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def on(kind: str) -> str:
    """Return the cluster file, with another type."""
    return CLUSTER.replace("p4d.24xlarge", kind)


def said(overrides: str, *changes: tuple[str, str], kind: str = "p5.48xlarge") -> list[str]:
    """Check the shipped Bridge job with overrides, on another type."""
    found = findings(written(overrides, *changes), on(kind))
    return [line.partition(": ")[2] for line in found]


FP8 = ("training:\n", "training:\n  precision: fp8\n")


@pytest.mark.parametrize(
    ("kind", "recipe", "wrong"),
    [
        ("p5.48xlarge", "mxfp8", True),
        ("p5.48xlarge", "blockwise", False),
        ("p6-b200.48xlarge", "mxfp8", False),
    ],
)
def test_recipe_of_fp8_is_one_of_the_gpus(kind, recipe, wrong):
    """As of Megatron-LM's option, and only where something is computed in FP8."""
    lines = said(f"mixed_precision.fp8_recipe: {recipe}", FP8, kind=kind)
    assert [f"no units for {recipe}" in line for line in lines] == [True] * wrong
    assert said(f"mixed_precision.fp8_recipe: {recipe}", kind=kind) == []


def test_block_that_no_recipe_has_may_be_in_another_image():
    """Ours has none; another one may bring recipes."""
    own = ("image: megatron", f"image: registry.example/bridge@sha256:{'a' * 64}")
    text = BRIDGE.replace("overrides: {}", "overrides: {peft.dim: 8}").replace(*own)
    assert [line.split()[1] for line in findings(text)] == ["MEKS-0399", "MEKS-0384"]


MIXTRAL = (
    ("model: llama-3.1-8b", "model: mixtral-8x7b"),
    ("recipe: llama31_8b_pretrain_config", "recipe: mixtral_8x7b_pretrain_config"),
    ("/shared/tokenizer/llama-3.1-8b", "/shared/tokenizer/mixtral-8x7b"),
    ("  pretrained: /shared/checkpoints/llama-3.1-8b-base\n", "  keep_last: 1\n"),
    ("  tensor: 4\n", "  tensor: 4\n  expert: 2\n"),
)
OVERLAP = "comm_overlap.overlap_moe_expert_parallel_comm: true"


@pytest.mark.parametrize(
    ("overrides", "changes", "words"),
    [
        (OVERLAP, (), ""),
        (f"{OVERLAP}, comm_overlap.delay_wgrad_compute: true", (), ""),
    ],
)
def test_communication_hides_where_it_can(overrides, changes, words):
    """Bridge asserts the same of experts, and switches that of tensors off."""
    plain = said("", *MIXTRAL, *changes)
    more = [line for line in said(overrides, *MIXTRAL, *changes) if line not in plain]
    assert [words in line for line in more] == [True] * bool(words)


STAGES = ("  tensor: 4\n", "  tensor: 2\n  pipeline: 4\n")
# What Megatron says of an option of the same meaning: see tests/programs/test_megatron_options.py.
ASKED = [
    (f"{OVERLAP}, model.moe_shared_expert_overlap: true", MIXTRAL, "moe_shared_expert_overlap"),
    (OVERLAP, (*MIXTRAL, ("expert: 2", "expert: 2\n  pipeline: 2")), "virtual_pipeline"),
    (OVERLAP, (*MIXTRAL, ("training:\n", "training:\n  recompute: full\n")), "recomputation"),
    (OVERLAP, (*MIXTRAL, ("expert: 2", "expert: 1")), "with expert model parallelism"),
    ("model.num_layers_in_first_pipeline_stage: 7", (STAGES,), "25 must be divisible"),
    ("model.account_for_embedding_in_pipeline_split: true", (STAGES,), "layers"),
    ('model.pipeline_model_parallel_layout: "Et*8|t*8|t*8|t*7L"', (STAGES,), "layers 31"),
    (OVERLAP, MIXTRAL, ""),
    (f"{OVERLAP}, comm_overlap.delay_wgrad_compute: true", MIXTRAL, ""),
    ("model.num_layers_in_first_pipeline_stage: 8", (STAGES,), ""),
    ('model.pipeline_model_parallel_layout: "Et*7|t*9|t*9|t*7L"', (STAGES,), ""),
]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ("model.num_layers_in_first_pipeline_stage: 8", ""),
        ('model.pipeline_model_parallel_layout: "Et*7|t*9|t*9|t*7L"', ""),
        ("model.microbatch_group_size_per_vp_stage: 2", "do not fill 4 stages"),
    ],
)
def test_layers_are_divided_by_bridges_names(overrides, words):
    """As by Megatron-LM's options; whoever divides by hand is not told of even stages."""
    more = said(overrides, STAGES)
    assert [words in line for line in more] == [True] * bool(words)


LARGE = (
    ("model: llama-3.1-8b", "model: llama-3.1-405b"),
    ("recipe: llama31_8b_pretrain_config", "recipe: llama31_405b_pretrain_config"),
)


@pytest.mark.parametrize(
    ("pipeline", "even"), [(2, True), (16, True), (7, False), (9, False)], ids=str
)
def test_a_recipe_that_counts_embedding_and_loss(pipeline, even):
    """Of Llama 3.1 405B: 126 layers and two more, which 7 stages do not divide."""
    lines = said("", *LARGE, ("  tensor: 4\n", f"  tensor: 1\n  pipeline: {pipeline}\n"))
    assert (
        any("does not divide 128 layers, embedding and loss among" in each for each in lines)
        != even
    )


def test_a_recipe_with_stages_of_its_own():
    """DeepSeek V3 and others bring a layout for each size of the pipeline."""
    own = ("recipe: llama31_8b_pretrain_config", "recipe: deepseek_v3_pretrain_config")
    lines = said("", own, ("  tensor: 4\n", "  tensor: 1\n  pipeline: 3\n"))
    assert not any("does not divide 32 layers" in each for each in lines)
