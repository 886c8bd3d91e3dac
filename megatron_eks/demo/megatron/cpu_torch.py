"""Answers torch.cuda with the CPU, for code that knows nothing else; import before megatron.

What it cannot show: NCCL, streams and their overlap, memory, kernels, speed.
"""

import collections
import contextlib
import functools
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

# Megatron wants it for tensor parallelism where the GPU is older than Blackwell.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")

import torch
import torch.cuda.random
import torch.distributed

_CPU = torch.device("cpu")
_MAKERS = (
    *("arange", "as_tensor", "empty", "empty_like", "eye", "full", "full_like", "linspace"),
    *("ones", "ones_like", "rand", "rand_like", "randint", "randn", "tensor", "tril", "triu"),
    *("zeros", "zeros_like"),
)
_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")
# An A100, whose rules for arguments are the strictest.
_PROPERTIES = SimpleNamespace(
    major=8, minor=0, name="CPU", total_memory=1 << 34, multi_processor_count=1
)


class _Stream:
    """A stream or an event, neither of which has anything to wait for."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _answer(None)

    def record_event(self, event: "_Event | None" = None) -> "_Event":
        """Return an event, as a stream does."""
        return event or _Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Event(_Stream):
    """Other code tells the two apart by class."""


def _answer(value: object) -> Callable[..., Any]:
    """Return a new function each time: torch._dynamo refuses one object under two names."""
    return lambda *_, **__: value


def _make(kind: Callable[[], object]) -> Callable[..., Any]:
    return lambda *_, **__: kind()


def _device(wanted: Any) -> Any:
    """Return the CPU for a CUDA device, and anything else as it is."""
    if isinstance(wanted, bool):
        return wanted
    kind = wanted.type if isinstance(wanted, torch.device) else wanted
    on_cuda = isinstance(kind, int) or (isinstance(kind, str) and kind.startswith("cuda"))
    return _CPU if on_cuda else wanted


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*words: Any, **named: Any) -> Any:
        if named.get("device") is not None:
            named["device"] = _device(named["device"])
        if named.get("pin_memory"):
            named["pin_memory"] = False
        return function(*words, **named)

    return call


def _tensors() -> None:
    """Let a tensor asked for on CUDA be on the CPU; only its type() still says `torch.cuda`."""
    for name in _MAKERS:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    tensor: Any = torch.Tensor
    for name in _METHODS:
        setattr(tensor, name, _on_cpu(getattr(tensor, name)))
    plain_type, plain_to = tensor.type, _on_cpu(tensor.to)

    def to(self: Any, *words: Any, **named: Any) -> Any:
        # A plain number is no device here but a size of something else.
        places = [word if isinstance(word, int) else _device(word) for word in words]
        return plain_to(self, *places, **named)

    def type_(self: Any, *words: Any, **named: Any) -> Any:
        if words or named:
            return plain_type(self, *words, **named)
        return plain_type(self).replace("torch.", "torch.cuda.", 1)

    tensor.to, tensor.type = to, type_
    tensor.cuda = tensor.pin_memory = lambda self, *_, **__: self


def _cuda() -> None:
    """Pretend one device without a driver; is_available() stays False."""
    cuda: Any = torch.cuda
    cuda.device_count, cuda.current_device = _answer(1), _answer(0)
    cuda.get_device_properties = _answer(_PROPERTIES)
    cuda.get_device_capability = _answer((_PROPERTIES.major, _PROPERTIES.minor))
    cuda.device = cuda.stream = _make(contextlib.nullcontext)
    for name in ("_lazy_init", "empty_cache", "reset_peak_memory_stats", "synchronize"):
        setattr(cuda, name, _answer(None))
    cuda.set_device = _answer(None)
    for name in ("memory_allocated", "memory_reserved"):
        setattr(cuda, name, _answer(0))
        setattr(cuda, f"max_{name}", _answer(0))
    cuda.memory_stats = _make(lambda: collections.defaultdict(int))
    cuda.Stream, cuda.Event = _Stream, _Event
    cuda.current_stream, cuda.default_stream = _make(_Stream), _make(_Stream)


def _generators() -> None:
    """Let CUDA's generator be the CPU's."""
    cuda: Any = torch.cuda
    cuda.default_generators = (torch.default_generator,)
    cuda._lazy_call = lambda callback, **_: callback()  # noqa: SLF001 -- how Megatron seeds it
    cuda.manual_seed = torch.default_generator.manual_seed
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *_, **__: torch.set_rng_state(
        state
    )


def _rest() -> None:
    """Leave out torch.compile, and what gloo does not take."""
    plain_barrier = torch.distributed.barrier

    def compile_(function: Any = None, *_: object, **__: object) -> Any:
        return (lambda each: each) if function is None else function

    def barrier(group: Any = None, async_op: bool = False, device_ids: object = None) -> Any:  # noqa: ARG001, FBT001, FBT002 -- torch's signature; gloo refuses device ids
        return plain_barrier(group, async_op)

    torch.compile = compile_
    torch.distributed.barrier = barrier


_tensors()
_cuda()
_generators()
_rest()
# Two cores have several ranks to run.
torch.set_num_threads(1)
