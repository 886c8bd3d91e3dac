"""What a GPU job's arguments become on CPUs: what is added or replaced, and what is left out."""

from collections.abc import Mapping, Sequence

REPLACED: Mapping[tuple[str, ...], str] = {
    ("--distributed-backend", "gloo"): "NCCL connects GPUs only",
    ("--use-cpu-initialization",): "weights are drawn by the generator of the CPU",
    ("--transformer-impl", "local"): "Transformer Engine is CUDA",
    ("--attention-backend", "unfused"): "flash and fused attention are CUDA",
    ("--no-gradient-accumulation-fusion",): "the kernel is Apex's or Transformer Engine's",
    ("--no-bias-swiglu-fusion",): "a kernel made by torch.compile",
    ("--no-bias-gelu-fusion",): "a kernel made by torch.compile",
    ("--no-bias-dropout-fusion",): "a kernel made by torch.compile",
    ("--no-masked-softmax-fusion",): "the kernel is CUDA",
    ("--no-persist-layer-norm",): "the kernel is Apex's",
    ("--no-rope-fusion",): "the kernel is Transformer Engine's",
    ("--async-strategy", "mcore"): "the default one is in nvidia-resiliency-ext",
}
"""Written after the job's own, since of an option given twice the last one counts; each with why.

Nothing of it changes what is computed, but for rounding.
"""

LEFT_OUT: Mapping[str, str] = {"--fp8-format": "Transformer Engine's; bf16 is what remains"}
"""Options without a counterpart on CPUs, each with why."""


def on_cpu(words: Sequence[str]) -> list[str]:
    """Return Megatron's arguments for a CPU, from those for a GPU."""
    kept: list[str] = []
    leaving = False
    for word in words:
        if word.startswith("--"):
            leaving = word.partition("=")[0] in LEFT_OUT
        if not leaving:
            kept.append(word)
    return [*kept, *(word for option in REPLACED for word in option)]
