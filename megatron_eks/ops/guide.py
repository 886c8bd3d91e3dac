"""Writes the tables of docs/parallelism.md; run by `make generate`, tested fresh."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from megatron_eks.catalog.instances import INSTANCES, MIB_PER_GIB, InstanceType
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.memory import estimate, tensor_capacity_bytes

GUIDE = Path(__file__).parents[2] / "docs" / "parallelism.md"

# A preset, and the GPUs that people give it.
_MODELS = {"llama-3.1-8b": 16, "llama-3.1-70b": 64}

_BATCH = Batch(micro_batch_size=1, sequence_length=4096, microbatches=64, recompute="selective")
_FILLED = 0.92
_SIZES = (1, 2, 4, 8, 16)


def guide(text: str) -> str:
    """Return the guide with its tables made anew."""
    for name, lines in (("families", _families()), ("fits", _fits())):
        region = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        table = "\n".join(lines)
        text = re.sub(region, rf"\g<1>{table}\n\g<2>", text, flags=re.DOTALL)
    return text


def _families() -> Iterator[str]:
    yield from _header(
        ("type", "GPUs", "GiB each", "NVLink", "network", "EFA", "GPUDirect", "all-reduce")
    )
    for instance in INSTANCES.values():
        mark = instance.allreduce_min_busbw_gb_s
        missing = "unknown" if instance.efa_interfaces else "-"
        efa = f"{instance.efa_interfaces or 'none'}"
        if instance.efa_interfaces and instance.efa_generation:
            efa += f" v{instance.efa_generation}"
        yield _row(
            (
                instance.name,
                f"{instance.gpus} x {instance.gpu.name}",
                f"{instance.gpu.usable_memory_mib / MIB_PER_GIB:.1f}",
                f"{instance.nvlink_gb_s or '-'}",
                f"{instance.network_gbps / instance.gpus:g}",
                efa,
                "yes" if instance.gpu_direct_rdma else "no",
                f"{mark:g}" if mark else missing,
            )
        )


def _fits() -> Iterator[str]:
    """Yield one row for each GPU and number of them in a node: the network has no say in it."""
    yield from _header(
        ("GPUs of a node", "types", *(f"{name}, {gpus} GPUs" for name, gpus in _MODELS.items()))
    )
    nodes: dict[tuple[str, int], list[InstanceType]] = {}
    for instance in INSTANCES.values():
        nodes.setdefault((instance.gpu.name, instance.gpus), []).append(instance)
    for (gpu, count), alike in nodes.items():
        names = ", ".join(instance.name for instance in alike)
        cells = [_cell(PRESETS[model], alike[0], gpus) for model, gpus in _MODELS.items()]
        yield _row((f"{count} x {gpu}", names, *cells))


def _cell(model: ModelShape, instance: InstanceType, gpus: int) -> str:
    for pipeline in _SIZES:
        fitting = [
            str(tensor)
            for tensor in _SIZES
            if tensor <= instance.gpus and _fit(model, instance, gpus, tensor, pipeline)
        ]
        if fitting:
            stages = f", pipeline {pipeline}" if pipeline > 1 else ""
            return f"tensor {' '.join(fitting)}{stages}"
    return "no"


def _fit(model: ModelShape, instance: InstanceType, gpus: int, tensor: int, pipeline: int) -> bool:
    if instance.gpus % tensor or gpus % (tensor * pipeline) or model.num_layers % pipeline:
        return False
    layout = Layout(tensor, pipeline, context=1, data=gpus // (tensor * pipeline))
    capacity = int(tensor_capacity_bytes(instance.gpu.usable_memory_mib * 1024**2) * _FILLED)
    return estimate(model, layout, _BATCH, capacity).per_gpu_bytes <= capacity


def _header(columns: Sequence[str]) -> Iterator[str]:
    yield _row(columns)
    yield "|---" * len(columns) + "|"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the guide's tables."""
    GUIDE.write_text(guide(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
