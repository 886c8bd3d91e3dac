"""The constants of the speed model that come from measurements, and how far it was off.

`python -m benchmarks.fit` fits them on the rows that benchmarks/data/README.md calls `fit`, and
prints them; every other number of the model is a data sheet's or is counted. calibration.txt says
what each is.
"""

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass

from megatron_eks.catalog.tables import entries, parts
from megatron_eks.predict.hardware import Framework, Generation
from megatron_eks.predict.layout import Batch, Precision, Software

_TABLE = parts((pkgutil.get_data("megatron_eks.predict", "calibration.txt") or b"").decode())


@dataclass(frozen=True, eq=False)
class Calibration:
    """What share of a data sheet's rate a training run reaches, and what it does not overlap."""

    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        """Return a constant by its name in calibration.txt."""
        return self.values[name]

    def matrix(self, framework: Framework, generation: Generation, precision: Precision) -> float:
        """Return the share of the peak that large matrix products reach."""
        bits = "fp8" if precision == "mxfp8" else precision
        if generation == "ada":  # taken for Ampere or, in FP8, Hopper
            generation = "ampere" if bits == "bf16" else "hopper"
        # What has no units for fewer bits computes in those that it has.
        kinds = (bits, "fp8", "bf16")
        names = (f"{framework} {generation} {kind}" for kind in kinds[kinds.index(bits) :])
        return next(self.values[name] for name in names if name in self.values)

    def attention(self, framework: Framework, generation: Generation, software: Software) -> float:
        """Return the share of the bf16 peak that flash attention reaches."""
        if generation in {"ampere", "ada"}:
            return self["attention ampere"]
        if generation == "hopper" and framework == "megatron" and software == "2024":
            return self["attention hopper 2024"]
        return self[f"attention {generation}{' fsdp' * (framework == 'fsdp')}"]

    def launching(self, batch: Batch, share: float) -> float:
        """Return the least time of an average layer of which this share has experts."""
        if batch.graphs == "full":
            return 0.0
        partial = batch.graphs == "partial"
        experts = self["launch experts partial" if partial else "launch experts"]
        experts *= self["launch flex"] if batch.flex else 1.0
        return share * experts + (0.0 if partial else (1 - share) * self["launch"])


CALIBRATION = Calibration(
    {name: float(said.split()[0]) for name, said in entries(_TABLE["constants"])}
)
_SPREAD = {name: said.split() for name, said in entries(_TABLE["ranges"])}
# Nothing like it was measured.
_UNKNOWN = ("1.6", "0")


def spread(
    framework: Framework, generation: Generation, precision: Precision, *, experts: bool
) -> tuple[float, int]:
    """Return the factor within which a run is to be expected, and of how many rows it comes."""
    bits = "bf16" if precision == "bf16" else "fewer"
    name = f"{framework} {generation} {bits}{' experts' * experts}"
    factor, count = _SPREAD.get(name, _UNKNOWN)
    return float(factor), int(count)
