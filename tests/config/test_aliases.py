"""A key that another tool has is answered with the one that stands here for it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_eks.config.aliases import of_other_tool
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "megatron_eks" / "config"
CLUSTER = (ROOT / "cluster.yaml").read_text()
JOB = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
FSDP = (ROOT / "jobs" / "fsdp-llama-2-7b.yaml").read_text()

# Where a line stands, what comes before it, and how the answer to it starts.
IN_CLUSTERS = [
    ("schema_version: 1", "version: '1.35'", "use kubernetes_version"),
    ("schema_version: 1", "managedNodeGroups: []", "use gpu_pools"),
    ("schema_version: 1", "metadata: {name: a}", "use name and region"),
    ("schema_version: 1", "fsx: {}", "use storage.lustre"),
    ("schema_version: 1", "single_nat_gateway: true", "use network.nat_gateways: 0, 1"),
    ("    max_nodes: 2", "    type: p4d.24xlarge", "use instance_type"),
    ("    max_nodes: 2", "    subnet_ids: []", "use availability_zone"),
    ("    capacity_gib:", "    storage_capacity: 1200", "use capacity_gib"),
]
IN_JOBS = [
    ("schema_version: 1", "namespace: training", "remove it: platform.namespace"),
    ("schema_version: 1", "NCCL_DEBUG: INFO", "use runtime.env: NCCL_DEBUG is a variable"),
    # At the top, where other tools have no blocks, or in another block.
    ("schema_version: 1", "num_epochs: 3", "use training.train_iters: epochs x tokens"),
    ("  train_iters:", "  tensor_model_parallel_size: 4", "use parallelism.tensor"),
    ("  tensor: 4", "  save_total_limit: 2", "use checkpoint.keep_last"),
    ("  tensor: 4", "  pipeline_model_parallel_size: 1", "use pipeline"),
    ("  shm_gib:", "  nproc_per_node: 8", "use gpus_per_node, at the top"),
    ("  keep_last:", "  load: /shared/a", "use directory, which a run goes on from"),
]
IN_MODELS = [
    ("num_key_value_heads", "use num_query_groups"),
    ("disable_bias_linear", "use add_bias_linear, which says the opposite"),
]
IN_FSDP = [
    ("schema_version: 1", "num_epochs: 3", "use training.max_steps: epochs x samples"),
    ("  max_steps:", "  cpu_offload: true", "remove it: sharding and"),
    ("  dataset:", "  dataset_config_name: en", "use configuration"),
]


def answers(text: str, parse: Callable[..., Any]) -> list[str]:
    """Return what to do about each unknown key of a file."""
    _, found = parse(read_mapping(text, "a.yaml"))
    return [each.remedy for each in found if "unknown key" in each.found]


@pytest.mark.parametrize(
    ("file", "parse", "before", "line", "answer"),
    [
        *((CLUSTER, parse_cluster, *each) for each in IN_CLUSTERS),
        *((JOB, parse_job, *each) for each in IN_JOBS),
        *((FSDP, parse_job, *each) for each in IN_FSDP),
    ],
    ids=[each[1].strip() for each in (*IN_CLUSTERS, *IN_JOBS, *IN_FSDP)],
)
def test_each_foreign_key_is_answered_with_the_one_here(file, parse, before, line, answer):
    """Only the key in the wrong tool's spelling has a finding, and the finding says what to do."""
    assert file.count(before) == 1
    (remedy,) = answers(file.replace(before, f"{line}\n{before}"), parse)
    assert remedy.startswith(answer)


@pytest.mark.parametrize(("key", "answer"), IN_MODELS)
def test_a_key_of_hugging_faces_configuration_has_its_counterpart(key, answer):
    """A likely letter is not a likely meaning: num_key_value_heads is not num_attention_heads."""
    text = JOB.replace("model: llama-3.1-8b", f"model: {{preset: llama-3.1-8b, {key}: 8}}")
    (remedy,) = answers(text, parse_job)
    assert remedy.startswith(answer)


def test_every_remedy_names_keys_that_there_are():
    """What the table says to use is a key of a file, with its block before it where it has one."""
    table = yaml.safe_load((CONFIG / "aliases.yaml").read_text())
    files = [
        json.loads((CONFIG / "schema" / name).read_text()) for name in ("cluster.json", "job.json")
    ]
    blocks = [*files[:1], *(block for file in files for block in file["$defs"].values())]
    known = {key for block in blocks for key in block["properties"]}
    remedies = [each for of in ("keys", "options") for rows in table[of].values() for each in rows]
    named = [found[1] for each in remedies if (found := re.match("use ([a-z0-9_.]+)", each))]
    assert len(named) > 100
    assert [each for each in named if not known.issuperset(each.split("."))] == []


def test_a_key_of_no_tool_is_left_to_the_likest_one():
    """A slip of the pen is no other tool's key."""
    assert of_other_tool("num_layer", {"num_attention_heads", "num_layers"}) is None
    assert of_other_tool("shm_gb", {"shm_gib"}) is None
    assert of_other_tool("NCCL_DEBUG", {"tensor"}) is None
    assert of_other_tool("NODES", {"runtime", "nodes"}) is None
