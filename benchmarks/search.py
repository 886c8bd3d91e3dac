"""How long the search over layouts takes, and whether it finds what experts ran."""

import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import measured
from benchmarks.predictions import HARDWARE
from benchmarks.timing import ROOT, verdict
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.job import MegatronJob
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.search import search
from megatron_eks.plan.jobs.training import hardware
from megatron_eks.predict.layout import Batch
from megatron_eks.predict.settings import States
from megatron_eks.predict.throughput import megatron_speed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measured import Measured
    from benchmarks.timing import Row
    from megatron_eks.catalog.models import ModelShape

_JOB = Path(ROOT) / "jobs" / "megatron-cpt-techpulse.yaml"
_BAR_SECONDS = 1.0
_AS_FAST = 1.05
# NVL72 is no type of the catalogue: its runs are searched on the type with the same GPU.
_TYPES = {
    "h100": "p5.48xlarge",
    "b200": "p6-b200.48xlarge",
    "gb200": "p6-b200.48xlarge",
    "b300": "p6-b300.48xlarge",
    "gb300": "p6-b300.48xlarge",
}


def _job(nodes: int, batch: int, **training: object) -> MegatronJob:
    job, _ = parse_job(read_mapping(_JOB.read_text(encoding="utf-8"), _JOB.name))
    assert isinstance(job, MegatronJob)  # noqa: S101 -- the file is the project's own
    changes = {"global_batch_size": batch, **training}
    block = job.training.model_copy(update=changes)
    return job.model_copy(update={"nodes": nodes, "training": block})


def rows() -> "Iterator[Row]":
    """Yield the CPU time of searches, which other processes do not lengthen, and what they find."""
    published = {row.source + str(row.value): row for row in measured.throughput()}.values()
    models: dict[str, ModelShape] = {"405 B": model_shape("llama-3.1-405b")}
    for row in published:
        for lineage, name in (("deepseek h100", "DeepSeek-V3"), ("qwen3 h100", "Qwen3 235B")):
            if row.family.startswith(lineage) and row.model.num_layers in {61, 94}:
                models[name] = row.model
    for name, nodes, batch in (
        ("405 B", 128, 512),
        ("DeepSeek-V3", 128, 8192),
        ("Qwen3 235B", 32, 2048),
    ):
        start = time.process_time()
        found = search(_job(nodes, batch), models[name], INSTANCES["p5.48xlarge"])
        seconds = time.process_time() - start
        words = f"search: {name} on {8 * nodes:,} H100, {len(found)} fit"
        holds = verdict(holds=bool(found) and seconds <= _BAR_SECONDS)
        yield words, f"{seconds:.2f} s", f"{_BAR_SECONDS:.0f} s", holds
    asked = [row for row in published if row.source.startswith("http") and _whole_nodes(row)]
    worse = [row for row in asked if _best(row) > _AS_FAST * _own(row)]
    found_all = f"{len(asked) - len(worse)} of {len(asked)}"
    yield (
        "published runs with a layout found within 5 %",
        found_all,
        "all",
        verdict(holds=not worse),
    )


def _whole_nodes(row: "Measured") -> bool:
    own = row.framework == "megatron" and row.layout.fsdp is None and not row.batch.lora
    return own and row.layout.gpus % 8 == 0


def _own(row: "Measured") -> float:
    """Return the predicted step of the published layout on the type that is searched."""
    found = hardware(INSTANCES[_TYPES[row.gpu.removesuffix("-efa")]]) or HARDWARE[row.gpu]
    speed = megatron_speed(row.model, row.layout, row.batch, found, states=row.states)
    return speed.step_seconds


def _best(row: "Measured") -> float:
    """Return the fastest step that the search finds with the run's own software."""
    sequences = row.batch.micro_batch_size * row.batch.microbatches * row.layout.data
    # The same for every layout of a run, and so for every release of it.
    same = replace(row.batch, micro_batch_size=1, microbatches=1, recompute="none")
    whole = replace(same, modules=frozenset(), offloaded=0.0)
    return _fastest(
        row.model,
        _TYPES[row.gpu.removesuffix("-efa")],
        whole,
        (row.layout.gpus, sequences, row.states),
    )


@cache
def _fastest(
    model: "ModelShape", instance: str, batch: Batch, size: tuple[int, int, States]
) -> float:
    gpus, sequences, states = size
    job = _job(
        gpus // 8, sequences, sequence_length=batch.sequence_length, precision=batch.precision
    )
    words = ["--grad-reduce-in-bf16"] * (states.gradient == 2)  # noqa: PLR2004 -- bytes
    moments = ("--exp-avg-dtype=bf16", "--exp-avg-sq-dtype=bf16")
    if states.optimizer == 6:  # noqa: PLR2004 -- half a master weight, two moments of 16 bits
        words += ["--use-precision-aware-optimizer", *moments]
    words += ["--fp8-param-gather"] * batch.fp8_weights
    graphs = "full_iteration" if batch.graphs == "full" else "local"
    words += [f"--cuda-graph-impl={graphs}"] * (batch.graphs != "none")
    words += ["--overlap-moe-expert-parallel-comm"] * batch.expert_overlap
    if batch.flex:
        words += ["--moe-token-dispatcher-type=flex"]
        words += [f"--moe-flex-dispatcher-backend={batch.dispatcher}"]
    job = job.model_copy(update={"extra_args": tuple(words)})
    found = search(job, replace(model, max_position_embeddings=2**21), INSTANCES[instance])
    return min((each.speed.step_seconds for each in found), default=float("inf"))
