"""The trainers' configuration: what is refused, in which words, and what models it can name."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_eks.catalog.gpus import GPUS, gpu_named
from megatron_eks.programs.program import Finding
from megatron_eks.programs.trainer.config import Config, read_config
from megatron_eks.programs.trainer.shape import flops_per_token, read_model
from tests.programs.trainer_files import TINY

GOOD = {
    "model": "llama-3.2-1b",
    "training": {"learning_rate": "1e-4"},
    "data": {"dataset": "allenai/c4", "configuration": "en", "tokenizer": "/shared/tokenizer"},
    "checkpoint": {"directory": "/shared/checkpoints/x"},
}


def read(tmp_path: Path, text: str) -> tuple[Config | None, list[str]]:
    """Read a text as a configuration file; return its findings as lines."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    findings: list[Finding] = []
    config = read_config(path, findings)
    assert all(finding.usage for finding in findings)
    return config, [str(finding).replace(str(path), "FILE") for finding in findings]


def changed(block: str, **values: object) -> str:
    """Return the good file as YAML with some values of a block changed."""
    content = json.loads(json.dumps(GOOD))
    content[block] = {**content[block], **values}
    return yaml.safe_dump(content)


def shape_findings(model: dict[str, Any], *, base_weights: bool = False) -> list[str]:
    """Return what is wrong with a model block."""
    findings: list[Finding] = []
    read_model(model, base_weights=base_weights, findings=findings)
    return [str(finding) for finding in findings]


def test_good_file_has_the_guides_defaults(tmp_path):
    """What a file leaves out is the source guide's; 1e-4 without a point is a number."""
    config, findings = read(tmp_path, yaml.safe_dump(GOOD))
    assert findings == []
    assert config is not None
    assert config.training.learning_rate == 1e-4
    assert (config.training.weight_decay, config.training.seed) == (0.2, 42)
    assert (config.data.configuration, config.timeout_minutes) == ("en", 10)


def test_whole_job_file_passes(tmp_path):
    """A job file is a configuration too; its runtime block has the timeout of collectives."""
    job = {**GOOD, "schema_version": 1, "kind": "fsdp", "name": "x", "pool": "p4d", "nodes": 2}
    config, findings = read(
        tmp_path, json.dumps({**job, "runtime": {"distributed_timeout_minutes": 3}})
    )
    assert findings == []
    assert config is not None
    assert config.timeout_minutes == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "model: [",
            (
                "error FILE: neither JSON nor YAML: while parsing a flow node expected the node "
                "content, but found '<stream end>' in \"<unicode string>\", line 1, column 9: "
                "model: [ ^ - correct it"
            ),
        ),
        (
            "3",
            "error the configuration: 3 - input should be a valid dictionary or instance of Config",
        ),
        (
            changed("training", max_step=1),
            "error training.max_step: unknown key - did you mean 'max_steps'?",
        ),
        (
            changed("training", max_steps=0),
            "error training.max_steps: 0 - input should be greater than 0",
        ),
        (
            changed("training", learning_rate=True),
            "error training.learning_rate: True - input should be a valid number",
        ),
        (
            changed("training", min_learning_rate=1),
            (
                "error training: min_learning_rate is above learning_rate 0.0001 - correct one of "
                "them"
            ),
        ),
        (
            changed("training", warmup_iters=101),
            "error training: warmup_iters are more than all 100 max_steps - correct one of them",
        ),
        (
            changed("data", tokenizer=""),
            "error data.tokenizer: '' - string should have at least 1 character",
        ),
        (
            yaml.safe_dump({**GOOD, "checkpoint": {}}),
            "error checkpoint.directory: not there - add it",
        ),
        (
            yaml.safe_dump({**GOOD, "model": None}),
            "error model: None - input should be a valid dictionary",
        ),
        (
            yaml.safe_dump({**GOOD, "optimizer": {}}),
            "error optimizer: unknown key - remove it",
        ),
    ],
)
def test_mistakes_are_said(tmp_path, text, expected):
    """Each with its place, what was found, and what to do."""
    config, findings = read(tmp_path, text)
    assert config is None
    assert findings == [expected]


def test_all_mistakes_are_said_at_once(tmp_path):
    """Nobody corrects a file once for each of its mistakes."""
    text = changed("training", max_steps="many", log_interval=0, typo=1)
    assert len(read(tmp_path, text)[1]) == 3


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_peaks_are_known_by_the_names_that_cuda_gives(gpu):
    """A utilization is a share of what the plan counts with."""
    found = gpu_named(f"NVIDIA {gpu.name}")
    assert found is not None
    assert found.tflops_bf16 == gpu.tflops_bf16


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"preset": "llama-9"}, "error model.preset: 'llama-9' - use "),
        ({"preset": "llama-2-7b", "num_layer": 2}, "error model.num_layer: unknown key - did you"),
        ({"preset": "llama-2-7b", "num_layers": "2"}, "error model.num_layers: '2' - input sh"),
        ({"preset": "llama-2-7b", "num_layers": 0}, "error model.num_layers: 0 - use a number"),
        (
            {key: TINY[key] for key in TINY if key != "hidden_size"},
            "error model.hidden_size: not there - add it",
        ),
        ({**TINY, "num_query_groups": 3}, "error model.num_query_groups: 3 does not divide 4 h"),
        ({**TINY, "kv_channels": 15}, "error model.kv_channels: 15 is odd, and rotary embed"),
        ({**TINY, "num_experts": 8}, "error model.num_experts: 8 is not supported by"),
        ({**TINY, "init": "pretrained"}, "error model.init: 'pretrained', and checkpoint.p"),
    ],
)
def test_models_that_cannot_be(model, expected):
    """A wrong model is refused before a GPU is touched."""
    (finding,) = shape_findings(model)
    assert finding.startswith(expected)


def test_base_weights_that_would_not_be_used():
    """`init: config` beside base weights is a contradiction, not a choice."""
    (finding,) = shape_findings({**TINY, "init": "config"}, base_weights=True)
    assert finding.endswith("- use pretrained, or remove checkpoint.pretrained")


def test_operations_of_a_token():
    """Llama 3.1 8B at 4,096 tokens: 51.5 GFLOP, 6 a parameter and attention in full."""
    shape = read_model({"preset": "llama-3.1-8b"}, base_weights=False, findings=[])
    assert shape is not None
    assert flops_per_token(shape, 4096) / 1e9 == pytest.approx(51.47, abs=0.01)
