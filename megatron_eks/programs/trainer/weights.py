"""First weights of a model: random, or from Hugging Face safetensors; each rank makes its shard.

No rank ever holds more than one whole tensor besides its own shards, and with base weights not
even that: torch reads a slice from the file.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from megatron_eks.catalog.models import ModelShape
from megatron_eks.programs.program import Finding, error

_RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight")


@torch.no_grad()
def initialize(model: nn.Module, shape: ModelShape, seed: int) -> None:
    """Draw first weights as Megatron does; they do not depend on the number of ranks.

    Normal with `init_method_std`, divided by sqrt(2 x layers) where a layer writes into the
    residual stream; norms 1, biases 0.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            continue
        narrow = math.sqrt(2 * shape.num_layers) if name.endswith(_RESIDUAL_OUTPUTS) else 1.0
        generator = torch.Generator(device=parameter.device)
        generator.manual_seed(_seed_of(name, seed))
        whole = torch.empty(parameter.shape, device=parameter.device)
        whole.normal_(0.0, shape.init_method_std / narrow, generator=generator)
        if isinstance(parameter, DTensor):
            # Every rank has drawn the same, so none is asked for its part.
            layout = parameter.device_mesh, parameter.placements
            whole = distribute_tensor(whole, *layout, src_data_rank=None)
        parameter.copy_(whole)


def load_pretrained(model: nn.Module, directory: Path) -> None:
    """Copy base weights into a model; call it after `check_pretrained` found nothing."""
    dcp.load(model.state_dict(), storage_reader=dcp.HuggingFaceStorageReader(str(directory)))


def check_pretrained(model: nn.Module, shape: ModelShape, directory: Path) -> Iterator[Finding]:
    """Compare names, shapes and the configuration beside the weights with the model."""
    remedy = "correct checkpoint.pretrained, or download the weights again"
    if not directory.is_dir():
        yield error(directory, "no such directory", remedy)
        return
    try:
        files = dcp.HuggingFaceStorageReader(str(directory)).read_metadata().state_dict_metadata
    except Exception as problem:  # noqa: BLE001 -- safetensors raises its own kind for a torn file
        yield error(directory, f"no whole safetensors: {problem}", remedy)
        return
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        there, wanted = name in files and tuple(files[name].size), tuple(parameter.shape)
        if there and there != wanted:
            yield error(f"{directory}: {name}", f"{there}, and the model has {wanted}", "fix model")
    if missing := [name for name in parameters if name not in files]:
        found = f"{len(missing)} weights are missing, {missing[0]} for one"
        yield error(directory, found, "use weights of this model, or correct model")
    yield from _check_config(shape, directory / "config.json")


def _check_config(shape: ModelShape, path: Path) -> Iterator[Finding]:
    """Compare what the shapes of weights do not tell."""
    if not path.is_file():
        return
    there = json.loads(path.read_text())
    rope = there.get("rope_parameters") or there.get("rope_scaling") or {}
    pairs: list[tuple[str, Any, Any]] = [
        ("num_attention_heads", there.get("num_attention_heads"), shape.num_attention_heads),
        ("norm_epsilon", there.get("rms_norm_eps"), shape.norm_epsilon),
        ("rotary_base", there.get("rope_theta", rope.get("rope_theta")), shape.rotary_base),
    ]
    for name, written, ours in pairs:
        if written is not None and not math.isclose(written, ours, rel_tol=1e-6):
            yield error(path, f"{name} is {written}, and the model has {ours}", "correct model")
    factor = shape.rope_scaling and shape.rope_scaling.factor
    if rope.get("factor") != factor and shape.rotary_base:
        found = f"rope scaling by {rope.get('factor')}, and the model's is {factor}"
        yield error(path, found, "name the preset of these weights")


def _seed_of(name: str, seed: int) -> int:
    """Return a seed of its own for each parameter, so that the order of drawing has no meaning."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big") >> 1
