"""Lets Megatron-Bridge be imported and convert on CPUs, without the CUDA packages it imports.

Its own code is not changed. Standing in are only packages that a Llama on CPUs never calls; the
layers are Megatron core's own instead of Transformer Engine's, as in megatron_eks/demo/megatron.
"""

import abc
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

STANDS_IN: Mapping[str, str] = {
    "transformer_engine": "CUDA; adapters of fine-tuning derive from its layers",
    "modelopt": "quantized and distilled models; its state is not saved where there is none",
    "nvidia_resiliency_ext": "restarts inside a process; its wheels need a newer glibc",
    "nvdlfw_inspect": "statistics of tensors",
    "megatron.energon": "data of vision models",
    "megatron.bridge.diffusion": "models of pictures, on the diffusers package",
    "megatron.bridge.recipes.flux": "a recipe of such a model",
    "megatron.bridge.recipes.wan": "a recipe of such a model",
    "torch.utils.tensorboard": "writes nothing without a directory to write to",
    "PIL": "pictures",
    "toml": "another form of a configuration",
}
"""Packages that are answered with empty classes, each with what it is for."""

# Fused kernels of Apex, Transformer Engine or torch.compile; what is computed stays the same.
_FUSIONS = (
    "apply_rope_fusion",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "gradient_accumulation_fusion",
    "masked_softmax_fusion",
    "persist_layer_norm",
)
# Functions of what stands in that are called, and what they answer.
_ANSWERS: Mapping[str, object] = {
    "modelopt.torch.opt.plugins.restore_modelopt_state": None,
    "modelopt.torch.opt.plugins.save_modelopt_state": None,
    "modelopt.torch.opt.plugins.save_sharded_modelopt_state": None,
    "modelopt.torch.quantization.utils.is_quantized": False,
}


class _Anything(abc.ABCMeta):
    """A class that has every attribute, itself such a class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Module(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what stands in, and everything below it."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Return how a module is made that is not to be looked for on disk."""
        parts = name.split(".")
        if any(".".join(parts[:end]) in STANDS_IN for end in range(1, len(parts) + 1)):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make one."""
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it as it was made."""


def install() -> None:
    """Make Megatron-Bridge importable in this process, and let it build layers for CPUs."""
    # First, while these see that there is no Transformer Engine, and do without.
    import megatron.core.post_training.modelopt.gpt.model_specs  # noqa: PLC0415 -- see above
    import megatron.training  # noqa: F401, PLC0415 -- as above

    sys.meta_path.insert(0, _Finder())
    for place, answer in _ANSWERS.items():
        module, _, name = place.rpartition(".")
        setattr(importlib.import_module(module), name, _answer(answer))
    provider: Any = importlib.import_module("megatron.bridge.models.gpt_provider")
    provider.transformer_engine_layer_spec = provider.local_layer_spec
    _without_fusions()


def _answer(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _without_fusions() -> None:
    from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: PLC0415

    plain = TransformerConfig.__post_init__

    def post_init(self: TransformerConfig) -> None:
        for name in _FUSIONS:
            setattr(self, name, False)
        plain(self)

    TransformerConfig.__post_init__ = post_init
