"""How the model is laid over the ranks: FSDP2 shards, or DistributedDataParallel's copies."""

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from megatron_eks.programs.trainer.loss import compile_loss
from megatron_eks.programs.trainer.model import Decoder

# On Hopper cuDNN's attention is the fastest that torch brings; torch itself asks for it last.
_ATTENTION = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]

Weights = Callable[[nn.Module], None]


@dataclass(frozen=True)
class Parallel:
    """A model laid over the ranks, and what a forward pass has to run in."""

    model: nn.Module
    autocast: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)


def compile_layers(model: Decoder, wish: Literal["auto", "on", "off"], kind: str) -> bool:
    """Compile layers and loss if wished, by default on GPUs; tell whether it is done."""
    if wish == "off" or (wish == "auto" and kind != "cuda"):
        return False
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        sys.stderr.write("warning compile: no C compiler in this image - running uncompiled\n")
        return False
    for layer in model.model.layers:
        layer.compile_parts()
    compile_loss()
    return True


def attention() -> AbstractContextManager[Any]:
    """Return what a whole run has to be in, for the order of attention kernels."""
    return sdpa_kernel(_ATTENTION, set_priority=True)


def mesh(kind: str, sharding: str) -> DeviceMesh:
    """Return all ranks in a row, or for `hybrid` nodes by GPUs of a node."""
    ranks, of_node = dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if sharding == "hybrid" and ranks % of_node == 0:
        names = ("replicate", "shard")
        return init_device_mesh(kind, (ranks // of_node, of_node), mesh_dim_names=names)
    return init_device_mesh(kind, (ranks,), mesh_dim_names=("shard",))


def shard(model: Decoder, device: torch.device, sharding: str, weights: Weights) -> Parallel:
    """Shard a model that is still on the meta device, then give it its weights."""
    settings: dict[str, Any] = {"mesh": mesh(device.type, sharding)}
    if device.type == "cuda":
        # All inputs are bf16 already, but for the rotary table, which has to stay fp32.
        settings["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    layers: list[Any] = list(model.model.layers)
    for layer in layers[:-1]:
        fully_shard(layer, **settings)
    # The backward pass begins with these, so freeing them in between would be for nothing.
    fully_shard(layers[-1], **settings, reshard_after_forward=False)
    if model.lm_head is not None:
        fully_shard(model.model.embed_tokens, **settings)
        fully_shard([model.model.norm, model.lm_head], **settings, reshard_after_forward=False)
    fully_shard(model, **settings)
    for layer, following in pairwise(layers):
        layer.set_modules_to_forward_prefetch([following])
    model.to_empty(device=device)
    weights(model)
    assert isinstance(model, FSDPModule)  # noqa: S101 -- what fully_shard makes of it
    return Parallel(model)


def copy(model: Decoder, device: torch.device, _: str, weights: Weights) -> Parallel:
    """Give every rank the whole model."""
    model.to_empty(device=device)
    weights(model)
    on_gpu = device.type == "cuda"
    wrapped = DistributedDataParallel(
        model, device_ids=[device.index] if on_gpu else None, gradient_as_bucket_view=True
    )
    if not on_gpu:
        return Parallel(wrapped)
    return Parallel(wrapped, lambda: torch.autocast("cuda", torch.bfloat16))
