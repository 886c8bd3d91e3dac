"""Compares every tensor of a Megatron checkpoint with a Hugging Face directory's.

Through Megatron-Bridge 0.6 (megatron/bridge/models/conversion/auto_bridge.py); it and torch are
imported inside, because the checks before a conversion need neither.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from megatron_eks.programs.program import Finding, error

# Of Megatron-Bridge and torch, which are not here to be looked at.
Bridge: TypeAlias = Any
Tensor: TypeAlias = Any

# Buffers that transformers computes and some old directories still hold.
_COMPUTED = ".rotary_emb.inv_freq"
_AGAIN = "do not use the result; convert again, and report the model if it stays so"


@contextmanager
def one_process() -> Iterator[None]:
    """Be a group of one over gloo, on a machine that may have no GPU.

    Without it `import_ckpt` starts NCCL (provide_distributed_model, 0.6).
    """
    import torch  # noqa: PLC0415 -- see above
    from megatron.bridge.training.model_load_save import temporary_distributed_context  # noqa: PLC0415 -- as above
    from megatron.core.tensor_parallel.random import initialize_rng_tracker  # noqa: PLC0415

    if not torch.cuda.is_available():
        # Saving asks for the state of CUDA's generator, which no import stores, waits for CUDA, and
        # counts failures in a tensor on its device (get_rng_state of Megatron-Bridge, strategies/
        # filesystem_async.py and state_dict_saver.py of Megatron core 0.19).
        torch.cuda.get_rng_state = torch.get_rng_state
        torch.cuda.synchronize = lambda *_, **__: None
        torch.cuda.current_device = lambda: torch.device("cpu")
    # Nothing here draws a random number.
    initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
    with temporary_distributed_context("gloo"):
        yield


def compare_tensors(
    bridge: Bridge, checkpoint: Path, directory: Path, facts: dict[str, object]
) -> Iterator[Finding]:
    """Load the checkpoint, and compare each tensor with the directory's; facts get how many."""
    models = bridge.load_megatron_model(str(checkpoint))
    stored = _stored(directory)
    tied = json.loads((directory / "config.json").read_bytes()).get("tie_word_embeddings")
    compared = 0
    for name, weight in bridge.export_hf_weights(models, cpu=True, show_progress=False):
        if tied and name == "lm_head.weight" and name not in stored:
            continue
        compared += 1
        if name not in stored:
            yield error(directory, f"no tensor {name}, which Megatron has", _AGAIN)
            continue
        yield from _compare(name, weight, _read(stored.pop(name), name))
    for name in sorted(name for name in stored if not name.endswith(_COMPUTED)):
        if not (tied and name == "lm_head.weight"):
            yield error(directory, f"Megatron has nothing of {name}", _AGAIN)
    facts["compared_tensors"] = compared


def _compare(name: str, weight: Tensor, other: Tensor) -> Iterator[Finding]:
    import torch  # noqa: PLC0415 -- see above

    if tuple(weight.shape) != tuple(other.shape):
        found = f"shape {tuple(weight.shape)} in Megatron, {tuple(other.shape)} in Hugging Face's"
        yield error(name, found, _AGAIN)
    elif not torch.equal(weight, other.to(weight.dtype)):
        apart = float((weight.float() - other.float()).abs().max())
        yield error(name, f"values differ, by up to {apart:.2g}", _AGAIN)


def _stored(directory: Path) -> dict[str, Path]:
    from safetensors import safe_open  # noqa: PLC0415 -- as above

    names: dict[str, Path] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names.update(dict.fromkeys(file.keys(), path))
    return names


def _read(path: Path, name: str) -> Tensor:
    from safetensors import safe_open  # noqa: PLC0415 -- as above

    with safe_open(path, framework="pt") as file:
        return file.get_tensor(name)
