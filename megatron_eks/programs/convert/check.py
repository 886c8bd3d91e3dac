"""Compares a Megatron checkpoint with a Hugging Face directory: every tensor, and the logits.

Through Megatron-Bridge 0.6 (megatron/bridge/models/conversion/auto_bridge.py); it and torch are
imported inside, because the checks before a conversion need neither.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from megatron_eks.programs.program import Finding, error

# Of Megatron-Bridge and torch, which are not here to be looked at.
Bridge: TypeAlias = Any
Model: TypeAlias = Any
Tensor: TypeAlias = Any

MANIFEST = "conversion.json"
"""Every tensor of the result in Hugging Face's form: shape, kind and SHA-256."""
LOGITS_BYTES = 3 * 10**9
"""Largest weights whose logits are compared: twice as fp32, they still fit where bf16 fitted."""

_TOKENS = 32
# Of the largest logit: what fp32 in another order of addition gives, with room.
_CLOSE = 1e-4
# Buffers that transformers computes and some old directories still hold.
_COMPUTED = ".rotary_emb.inv_freq"
_AGAIN = "do not use the result; convert again, and report the model if it stays so"
# Megatron core's own layers and no kernels of CUDA: these alone compute on a CPU.
_PLAIN = {
    "bf16": False,
    "fp16": False,
    "apply_rope_fusion": False,
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "gradient_accumulation_fusion": False,
    "masked_softmax_fusion": False,
    "persist_layer_norm": False,
}


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
    """Load the checkpoint, and compare each tensor with the directory's; facts get the manifest."""
    models = bridge.load_megatron_model(str(checkpoint))
    stored = _stored(directory)
    tied = json.loads((directory / "config.json").read_bytes()).get("tie_word_embeddings")
    manifest: dict[str, dict[str, object]] = {}
    for name, weight in bridge.export_hf_weights(models, cpu=True, show_progress=False):
        if tied and name == "lm_head.weight" and name not in stored:
            continue
        manifest[name] = _describe(weight)
        if name not in stored:
            yield error(directory, f"no tensor {name}, which Megatron has", _AGAIN)
            continue
        file = stored.pop(name)
        yield from _compare(name, weight, _read(file, name))
    for name in sorted(name for name in stored if not name.endswith(_COMPUTED)):
        if not (tied and name == "lm_head.weight"):
            yield error(directory, f"Megatron has nothing of {name}", _AGAIN)
    facts["compared_tensors"] = len(manifest)
    facts["manifest"] = manifest


def compare_logits(
    bridge: Bridge, checkpoint: Path, directory: Path, facts: dict[str, object]
) -> Iterator[Finding]:
    """Run both on the same tokens in fp32, and compare what they say."""
    import torch  # noqa: PLC0415 -- see above
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 -- as above

    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, local_files_only=True
    )
    size = model.config.vocab_size
    tokens = torch.randint(size, (1, _TOKENS), generator=torch.Generator().manual_seed(1234))
    with torch.no_grad():
        theirs = model.eval()(tokens).logits
        del model
        ours = megatron_logits(plain_model(bridge, checkpoint), tokens)[..., :size]
    difference, largest = float((ours - theirs).abs().max()), float(theirs.abs().max())
    facts["logits_difference"], facts["logits_largest"] = difference, largest
    if not difference <= _CLOSE * max(largest, 1.0):
        found = f"logits differ by {difference:.2g}, the largest is {largest:.3g}"
        yield error(checkpoint, found, _AGAIN)


def plain_model(bridge: Bridge, checkpoint: Path, **parallel: int) -> Model:
    """Load a checkpoint in fp32 into layers that compute on a CPU."""
    import torch  # noqa: PLC0415 -- see above
    from megatron.bridge.models.gpt_provider import local_layer_spec  # noqa: PLC0415 -- as above

    layers = {"transformer_layer_spec": local_layer_spec, "params_dtype": torch.float32}
    words = {**_PLAIN, **layers, **parallel}
    return bridge.load_megatron_model(str(checkpoint), mp_overrides=words)[0]


def megatron_logits(model: Model, tokens: Tensor) -> Tensor:
    """Return what a model of Megatron says after each token."""
    import torch  # noqa: PLC0415 -- see above

    count = tokens.shape[1]
    positions = torch.arange(count).expand(tokens.shape[0], -1)
    later = torch.ones(1, 1, count, count, dtype=torch.bool).triu(1)
    return model.eval()(tokens, positions, later)


def write_manifest(target: Path, facts: Mapping[str, object]) -> None:
    """Put the manifest beside what was written."""
    (target / MANIFEST).write_text(json.dumps(facts["manifest"], indent=1, sort_keys=True) + "\n")


def _compare(name: str, weight: Tensor, other: Tensor) -> Iterator[Finding]:
    import torch  # noqa: PLC0415 -- see above

    if tuple(weight.shape) != tuple(other.shape):
        found = f"shape {tuple(weight.shape)} in Megatron, {tuple(other.shape)} in Hugging Face's"
        yield error(name, found, _AGAIN)
    elif not torch.equal(weight, other.to(weight.dtype)):
        apart = float((weight.float() - other.float()).abs().max())
        yield error(name, f"values differ, by up to {apart:.2g}", _AGAIN)


def _describe(weight: Tensor) -> dict[str, object]:
    import torch  # noqa: PLC0415 -- see above

    data = weight.detach().contiguous().view(torch.uint8).numpy()
    return {
        "shape": list(weight.shape),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


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
