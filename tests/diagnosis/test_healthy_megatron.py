"""What Megatron and its libraries print in every run, or quote, is no trouble."""

import pytest

from megatron_eks.diagnosis.signatures import match


@pytest.mark.parametrize(
    "line",
    [
        "+ export CUDA_DEVICE_MAX_CONNECTIONS=1",
        "      CUDA_DEVICE_MAX_CONNECTIONS:  1",
        "  num_query_groups ................................ 8",
        "  max_position_embeddings ......................... 4096",
        "WARNING: could not find the metadata file /root/ckpt/latest_checkpointed_iteration.txt",
        "Building GPTDataset splits with config=GPTDatasetConfig(mid_level_dataset_surplus=0.005)",
        "INFO:megatron.core.datasets.gpt_dataset: the document index from a-document_index.npy",
        "(TP, PP) mismatch after resume ((2, 4) vs (1, 4)): RNG state will be ignored",
        "WARNING: RNG state not found for current TP/PP rank",
        "Job sharding has changed: Rerun state will be ignored",
        "Zarr-based strategies will not be registered because of missing packages",
        "  warnings.warn('Apex is not installed. Falling back to Torch Norm')",
        "DEBUG: Flash Attention: Disabling FlashAttention 2 for not being installed",
        "INFO:huggingface_hub: HF_HUB_OFFLINE=1 set, running in offline mode",
        "Collecting transformer-engine>=2.1.0",
        "Setting up git-lfs (3.0.2-1) ...",
        "/usr/bin/rm: cannot remove '/usr/local/cuda/compat/lib': Read-only file system",
        "    dataset = IndexedDataset(path_prefix, multimodal=False, mmap=True)",
        "INFO:megatron.core.optimizer:Setting up OptimizerConfig(grad_norm_skip_threshold=inf)",
        "config OptimizerConfig(lr=0.003, loss_scale=inf, clip_grad=nan)",
        "  grad_norm_skip_threshold ........................ inf",
        "INFO:megatron.core.datasets.gpt_dataset:> num_samples_per_epoch: 9200",
        "Rounding max batch size from 7 to 8 so it is divisible by tensor parallel size 2.",
        "Let mock = True, as both blend and blend_per_split are None",
        "--external-cuda-graph is deprecated, use --cuda-graph-impl=transformer_engine instead.",
        "Flight recorder env vars:",
        "INFO 11-20 10:00:00 import: no NaN or Inf found",
        "RerunStateMachine checkpoints ONLY SUPPORTED for checkpoint format torch_dist",
        "run_config.yaml not found, extracting config from legacy Megatron-LM checkpoint",
        "LustreError: 1:0:(obd_config.c:1350:process_param2_config()) lctl: error invoking upcall",
        "Token indices sequence length is longer than the specified maximum (8192 > 4096)",
    ],
)
def test_line_is_no_trouble(line: str) -> None:
    """No signature takes it for one."""
    assert match(line) is None
