"""Repairs the four places where megatron-core 0.19.2 itself cannot do without CUDA, Apex or TE."""

import functools
import queue
import sys
import types
from typing import Any

import torch
from megatron.core.datasets import utils
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.transformer import torch_norm
from megatron.training import initialize, training


def install() -> None:
    """Repair all of them, in this process."""
    _start()
    _without_compiler()
    _norm_with_sequence_parallel()
    _distributed_optimizer_with_torch_adam()


def save_in_this_process() -> None:
    """Keep what a save without `--async-save` wrote here, and not in a process that imports torch.

    It is for processes of their own, which then write nothing.
    """
    results: queue.Queue[Any] = queue.Queue()
    filesystem_async.get_write_results_queue = lambda *_, **__: results


def _start() -> None:
    """Start without CUDA: no assertion, no warm-up of kernels; the wheel has its helpers built."""
    training.initialize_megatron = functools.partial(
        initialize.initialize_megatron, allow_no_cuda=True
    )
    training.set_jit_fusion_options = lambda *_, **__: None
    utils.compile_helpers = lambda: None


def _without_compiler() -> None:
    """Answer torch's compiler, which every optimizer imports to be left out of what it compiles.

    That takes a second of each rank, and torch.compile does nothing here.
    """
    compiler: Any = types.ModuleType("torch._dynamo")
    compiler.disable = lambda function, *_, **__: function
    compiler.graph_break = lambda *_, **__: None
    compiler.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
    sys.modules[compiler.__name__] = torch._dynamo = compiler  # noqa: SLF001 -- as torch names it
    # The profiler asks it for one setting, and the real one wants the compiler.
    settings: Any = types.ModuleType("torch._inductor.config")
    settings.triton = types.SimpleNamespace(cudagraphs=False)
    inductor: Any = types.ModuleType("torch._inductor")
    inductor.config = settings
    sys.modules |= {settings.__name__: settings, inductor.__name__: inductor}
    torch._inductor = inductor  # noqa: SLF001 -- as above


def _norm_with_sequence_parallel() -> None:
    """Mark the weights of torch's norm as Apex's norm does, where torch's refuses.

    finalize_model_grads then sums their gradients over the tensor parallel ranks.
    """
    plain = torch_norm.WrappedTorchNorm.__new__

    def new(cls: Any, config: Any, hidden_size: int, *words: Any, **named: Any) -> Any:
        if not config.sequence_parallel:
            return plain(cls, config, hidden_size, *words, **named)
        config.sequence_parallel = False
        try:
            norm = plain(cls, config, hidden_size, *words, **named)
        finally:
            config.sequence_parallel = True
        for parameter in norm.parameters():
            parameter.sequence_parallel = True
        return norm

    torch_norm.WrappedTorchNorm.__new__ = new


def _distributed_optimizer_with_torch_adam() -> None:
    """Let the distributed optimizer be loaded when Adam is torch's own.

    0.19.2 asserts on the step of an Adam that has not stepped, looks for `step` among the loaded
    tensors, and gives all parameters one shared step tensor, which Adam then raises once for each
    parameter: a resumed run that silently differs.
    """
    kind = DistributedOptimizer
    plain_state, plain_load = kind.state_dict, kind.load_state_dict
    plain_put = kind._set_main_param_and_optimizer_states  # noqa: SLF001 -- what looks for `step`

    def state_dict(self: Any) -> Any:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                state = self.optimizer.state[parameter]
                state.setdefault("step", torch.tensor(0.0))
                state.setdefault("exp_avg", torch.zeros_like(parameter))
                state.setdefault("exp_avg_sq", torch.zeros_like(parameter))
        return plain_state(self)

    def load_state_dict(self: Any, state: Any) -> None:
        plain_load(self, state)
        for each in self.optimizer.state.values():
            each["step"] = each["step"].clone()

    def put(self: Any, parameter: Any, tensors: dict[str, Any]) -> None:
        with torch.no_grad():
            plain_put(self, parameter, {**tensors, "step": None})

    kind.state_dict, kind.load_state_dict = state_dict, load_state_dict
    kind._set_main_param_and_optimizer_states = put  # noqa: SLF001 -- as above
