"""A key that another tool has is answered with the one that stands here for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from megatron_eks.config.aliases import of_other_tool
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job

ROOT = Path(__file__).parents[2]
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
    ("  public_cidrs:", "  allowed_cidrs: []", "use public_cidrs"),
    ("    max_nodes: 2", "    type: p4d.24xlarge", "use instance_type"),
    ("    max_nodes: 2", "    subnet_ids: []", "use availability_zone"),
    ("    max_nodes: 2", "    max_pods: 110", "remove it: the plan writes"),
    ("    max_nodes: 2", "    capacityReservation: {}", "use capacity: {type: reservation"),
    ("    max_nodes: 2", "    amiFamily: AmazonLinux2023", "remove it: nodes run EKS's AMI"),
    ("    max_nodes: 2", "    efa_interfaces: 4", "remove it: a node has all EFA interfaces"),
    ("    capacity_gib:", "    storage_capacity: 1200", "use capacity_gib"),
    ("    capacity_gib:", "    perUnitStorageThroughput: 250", "use throughput_mbps_per_tib"),
    ("    capacity_gib:", "    import_path: s3://a/b", "use data_repositories"),
    ("    capacity_gib:", "    zone: us-east-2b", "use availability_zone"),
    ("    capacity_gib:", "    file_system_id: fs-0", "use existing: {id,"),
]
IN_JOBS = [
    ("schema_version: 1", "namespace: training", "remove it: platform.namespace"),
    ("schema_version: 1", "nodeSelector: {}", "remove it: pool says which nodes"),
    ("schema_version: 1", "backoffLimit: 3", "use runtime.gang_restarts"),
    ("schema_version: 1", "spec: {}", "remove it, with what is below"),
    ("schema_version: 1", "envVars: {}", "use runtime.env"),
    ("schema_version: 1", "NCCL_DEBUG: INFO", "use runtime.env: NCCL_DEBUG is a variable"),
    ("schema_version: 1", "zero_optimization: {stage: 3}", "remove it: parallelism.distributed"),
    ("schema_version: 1", "trainer: {devices: 8}", "use nodes, gpus_per_node and training"),
    ("schema_version: 1", "base_model: a/b", "use model: the name of a preset"),
    ("schema_version: 1", "lora_r: 16", "remove it: jobs train all weights"),
    ("schema_version: 1", "finetuning_type: full", "remove it: jobs of this kind train all"),
    ("schema_version: 1", "strategy: ddp", "remove it: kind and parallelism say"),
    ("schema_version: 1", "report_to: wandb", "use extra_args: TensorBoard"),
    ("schema_version: 1", "cutoff_len: 4096", "use training.sequence_length"),
    # At the top, where other tools have no blocks, or in another block.
    ("schema_version: 1", "num_epochs: 3", "use training.train_iters: epochs x tokens"),
    ("schema_version: 1", "tensor_model_parallel_size: 4", "use parallelism.tensor"),
    ("schema_version: 1", "output_dir: /shared/a", "use checkpoint.directory"),
    ("schema_version: 1", "rope_theta: 500000", "use model.rotary_base"),
    ("  train_iters:", "  tensor_model_parallel_size: 4", "use parallelism.tensor"),
    ("  tensor: 4", "  save_total_limit: 2", "use checkpoint.keep_last"),
    ("  tensor: 4", "  pipeline_model_parallel_size: 1", "use pipeline"),
    ("  train_iters:", "  train_micro_batch_size_per_gpu: 1", "use micro_batch_size"),
    ("  train_iters:", "  lora_alpha: 1", "remove it: jobs train all weights"),
    ("  tensor: 4", "  data: 4", "remove it: data parallel size"),
    ("  tensor: 4", "  zero_stage: 1", "use distributed_optimizer"),
    ("  train_iters:", "  gradient_accumulation_steps: 8", "use global_batch_size: micro"),
    ("  train_iters:", "  num_train_epochs: 3", "use train_iters: epochs"),
    ("  train_iters:", "  eval_steps: 100", "use eval_interval"),
    ("  train_iters:", "  warmup_ratio: 0.1", "use warmup_iters: a number of steps"),
    ("  train_iters:", "  gradient_checkpointing: true", "use recompute"),
    ("  prefix:", "  data_path: /shared/a", "use prefix"),
    ("  prefix:", "  data_cache_path: /shared/a", "use cache_dir"),
    ("  prefix:", "  vocab_file: /shared/v.json", "use tokenizer: a folder"),
    ("  keep_last:", "  resume_from_checkpoint: true", "remove it: a run goes on"),
    ("  keep_last:", "  s3_path: s3://a/b", "use s3_uri"),
    ("  keep_last:", "  finetune: true", "use pretrained"),
    ("  shm_gib:", "  shm_size: 64", "use shm_gib"),
    ("  shm_gib:", "  environment: {}", "use env"),
    ("  shm_gib:", "  NCCL_DEBUG: INFO", "use env: NCCL_DEBUG is a variable"),
    ("  shm_gib:", "  nproc_per_node: 8", "use gpus_per_node, at the top"),
    ("  shm_gib:", "  efa: 4", "remove it: CPU, memory"),
    ("  keep_last:", "  load: /shared/a", "use directory, which a run goes on from"),
    ("  shm_gib:", "  timeout: 30", "use distributed_timeout_minutes"),
    ("  shm_gib:", "  rdzv_backend: c10d", "use rendezvous"),
]
IN_MODELS = [
    ("num_key_value_heads", "use num_query_groups"),
    ("num_hidden_layers", "use num_layers"),
    ("intermediate_size", "use ffn_hidden_size"),
    ("rope_theta", "use rotary_base"),
    ("rms_norm_eps", "use norm_epsilon"),
    ("tie_word_embeddings", "use untie_embeddings_and_output_weights"),
    ("num_experts_per_tok", "use moe_router_topk"),
    ("n_routed_experts", "use num_experts"),
    ("head_dim", "use kv_channels"),
    ("disable_bias_linear", "use add_bias_linear, which says the opposite"),
    ("add_qkv_bias", "use extra_args: [--add-qkv-bias]"),
    ("size", "name a preset, or write"),
    ("name_or_path", "use preset, such as"),
    ("qk_nope_head_dim", "use qk_head_dim"),
    ("first_k_dense_replace", "use moe_layer_freq"),
]
IN_FSDP = [
    ("schema_version: 1", "num_epochs: 3", "use training.max_steps: epochs x samples"),
    ("  max_steps:", "  gradient_accumulation_steps: 8", "remove it: each step has one batch"),
    ("  max_steps:", "  cpu_offload: true", "remove it: sharding and"),
    ("  max_steps:", "  eval_steps: 8", "use validation_interval"),
    ("  dataset:", "  dataset_config_name: en", "use configuration"),
    ("  dataset:", "  prefix: /shared/a_text_document", "use dataset, which takes"),
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


def test_a_key_of_no_tool_is_left_to_the_likest_one():
    """A slip of the pen is no other tool's key."""
    assert of_other_tool("num_layer", {"num_attention_heads", "num_layers"}) is None
    assert of_other_tool("shm_gb", {"shm_gib"}) is None
    assert of_other_tool("NCCL_DEBUG", {"tensor"}) is None
    assert of_other_tool("NODES", {"runtime", "nodes"}) is None
