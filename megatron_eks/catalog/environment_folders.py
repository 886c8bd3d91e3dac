"""The variables that name folders in which programs write.

Sources: huggingface_hub and datasets, "Environment variables"; PyTorch, torch.hub and inductor;
Triton, knobs.py; wandb, "Environment variables"; XDG Base Directory Specification.
"""

FOLDERS = frozenset(
    {
        *("CUDA_CACHE_PATH", "HF_ASSETS_CACHE", "HF_DATASETS_CACHE", "HF_HOME", "HF_HUB_CACHE"),
        *("HF_MODULES_CACHE", "HF_XET_CACHE", "HUGGINGFACE_HUB_CACHE", "MPLCONFIGDIR"),
        *("NCCL_GRAPH_DUMP_FILE", "NCCL_TOPO_DUMP_FILE", "NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX"),
        *("TEMP", "TIKTOKEN_CACHE_DIR", "TMP", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR"),
        *("TORCH_COMPILE_DEBUG_DIR", "TORCH_EXTENSIONS_DIR", "TORCH_HOME", "TORCH_TRACE"),
        *("TRITON_CACHE_DIR", "TRITON_DUMP_DIR", "TRITON_HOME", "WANDB_ARTIFACT_DIR"),
        *("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_DIR", "XDG_CACHE_HOME"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    }
)
"""Folders that programs make, or files that they write."""

WRITTEN = FOLDERS | {"NCCL_DEBUG_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TRANSFORMERS_CACHE"}
"""What is written even where nothing else fails by it."""
