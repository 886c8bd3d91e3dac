"""The constants of the speed model that come from measurements, and how far it was off.

`python -m benchmarks.fit` fits them on the rows of benchmarks/data/throughput.csv that are marked
`fit`, and prints them; every other number of the model is a data sheet's or is counted.
"""

from dataclasses import dataclass

from megatron_eks.predict.hardware import Framework, Generation


@dataclass(frozen=True)
class Calibration:
    """What share of a data sheet's rate a training run reaches, and what it does not overlap."""

    megatron_ampere: float
    """Share of the bf16 peak that Megatron's matrix products reach; so the next."""
    megatron_hopper: float
    megatron_fp8_hopper: float
    """Share of the FP8 peak; so the next."""
    megatron_fp8_blackwell: float
    fsdp_ampere: float
    """Share of the bf16 peak that PyTorch's matrix products reach; so the next."""
    fsdp_hopper: float
    fsdp_fp8_hopper: float
    attention_ampere: float
    """Share of the bf16 peak that flash attention reaches; so the next two."""
    attention_megatron: float
    """On Hopper and Blackwell, with the kernels of cuDNN that Transformer Engine takes."""
    attention_fsdp: float
    """On Hopper and Blackwell, with kernels that were written for Ampere."""
    traffic: float
    """How often each byte that is kept for the backward pass moves to or from memory."""
    launch_seconds: float
    """The least time of a layer and microbatch: the host starts its kernels one by one."""
    launch_experts_seconds: float
    """The same with experts, whose host also waits to learn how many tokens each of them gets."""
    exposed_inside: float
    """Share of tensor and expert parallel traffic that computation does not hide."""
    exposed_gather: float
    """Share of what FSDP gathers and reduces that slows computation beside it."""

    def matrix(self, framework: Framework, generation: Generation, *, fp8: bool) -> float:
        """Return the share of the peak that matrix products reach.

        Where nothing was measured, Blackwell is taken for Hopper.
        """
        megatron = {
            ("ampere", False): self.megatron_ampere,
            ("hopper", False): self.megatron_hopper,
            ("hopper", True): self.megatron_fp8_hopper,
            ("blackwell", False): self.megatron_hopper,
            ("blackwell", True): self.megatron_fp8_blackwell,
        }
        fsdp = {
            ("ampere", False): self.fsdp_ampere,
            ("hopper", False): self.fsdp_hopper,
            ("hopper", True): self.fsdp_fp8_hopper,
            ("blackwell", False): self.fsdp_hopper,
            ("blackwell", True): self.fsdp_fp8_hopper,
        }
        # Ada has FP8 and Ampere's balance of arithmetic and memory.
        key = "hopper" if generation == "ada" and fp8 else generation
        key = "ampere" if key == "ada" else key
        return (fsdp if framework == "fsdp" else megatron)[key, fp8 and key != "ampere"]

    def attention(self, framework: Framework, generation: Generation) -> float:
        """Return the share of the bf16 peak that flash attention reaches."""
        if generation in {"ampere", "ada"}:
            return self.attention_ampere
        return self.attention_fsdp if framework == "fsdp" else self.attention_megatron


# How far nine of ten measured runs lie from the prediction, at most, as a factor: by framework,
# generation and FP8. Never below a fifth, because the next model is not among them.
_SPREAD: dict[tuple[Framework, Generation, bool], float] = {
    ("megatron", "ampere", False): 1.2,
    ("megatron", "hopper", False): 1.3,
    ("megatron", "hopper", True): 1.2,
    ("megatron", "blackwell", True): 1.3,
    ("fsdp", "ampere", False): 1.2,
    ("fsdp", "hopper", False): 1.25,
    ("fsdp", "hopper", True): 1.4,
}
# Nothing like it was measured.
_UNKNOWN_SPREAD = 1.5
# Mixtures of experts depend on routing and on software that doubled its speed within a year.
_EXPERTS_SPREAD = 1.7


def spread(framework: Framework, generation: Generation, *, fp8: bool, experts: bool) -> float:
    """Return the factor around a prediction within which a run is to be expected."""
    found = _SPREAD.get((framework, generation, fp8), _UNKNOWN_SPREAD)
    return max(found, _EXPERTS_SPREAD) if experts else found


CALIBRATION = Calibration(
    megatron_ampere=0.585,
    megatron_hopper=0.814,
    megatron_fp8_hopper=0.705,
    megatron_fp8_blackwell=0.714,
    fsdp_ampere=0.937,
    fsdp_hopper=0.775,
    fsdp_fp8_hopper=0.692,
    attention_ampere=0.304,
    attention_megatron=0.312,
    attention_fsdp=0.176,
    traffic=11.0,
    launch_seconds=0.0003,
    launch_experts_seconds=0.0124,
    exposed_inside=0.464,
    exposed_gather=0.764,
)
