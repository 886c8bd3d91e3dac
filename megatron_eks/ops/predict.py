"""`meks predict`: memory and speed of a run on hardware that the catalogue does not have."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding, Level, has_errors
from megatron_eks.config.load import Json
from megatron_eks.config.parse import parse_prediction
from megatron_eks.config.prediction import PredictionFile
from megatron_eks.ops.output import formatted, table
from megatron_eks.ops.plan_json import memory_as_json
from megatron_eks.plan.prediction import Prediction, check_prediction, predict, savings
from megatron_eks.predict.memory import GIB, OVERHEAD_BYTES, MemoryEstimate, StageMemory
from megatron_eks.predict.parameters import parameters
from megatron_eks.project import read_document

_MOST_STAGES = 8


def run(file: Path, output: str) -> int:
    """Print what is to be expected; raise ConfigError where there is no such run."""
    document = read_document(file)
    wanted, findings = parse_prediction(document)
    if wanted is not None and not has_errors(findings):
        findings += document.locate(check_prediction(wanted))
    if wanted is None or has_errors(findings):
        raise ConfigError(findings)
    found = predict(wanted)
    sys.stdout.write(formatted(output, _lines(wanted, found), lambda: _as_json(found)))
    missing = found.memory.per_gpu_bytes - found.memory.capacity_bytes
    if missing > 0:
        # What the run would take was asked for, and is answered: nothing is refused here.
        text = f"{missing / GIB:.1f} GiB a GPU are missing"
        changes = [f"{name} ({saved / GIB:.1f} less)" for name, saved in savings(wanted, found)]
        remedy = f"use {' or '.join(changes)}" if changes else "use more GPUs, or larger ones"
        late = Finding(Code.DOES_NOT_FIT, ("parallelism",), text, remedy, Level.WARNING)
        sys.stderr.writelines(f"{finding}\n" for finding in document.locate([late]))
    return 0


def _as_json(found: Prediction) -> Json:
    return {"memory": memory_as_json(found.memory), "throughput": dict(asdict(found.speed))}


def _shown(memory: MemoryEstimate) -> list[StageMemory]:
    """Choose the stages that fit a screen: of many the first, the fullest and the last."""
    if len(memory.stages) <= _MOST_STAGES:
        return [*memory.stages]
    chosen = {memory.stages[0].stage, memory.fullest.stage, memory.stages[-1].stage}
    return [memory.stages[index] for index in sorted(chosen)]


def _lines(wanted: PredictionFile, found: Prediction) -> Iterator[str]:
    gpus = f"{wanted.gpus} x {wanted.gpu.name}"
    yield f"{parameters(found.model) / 1e9:.3g} B parameters on {gpus}, {wanted.framework}"
    yield ""
    rows = [
        (
            str(stage.stage),
            *(
                f"{count / GIB:.1f}"
                for count in (
                    stage.weights_bytes,
                    stage.optimizer_bytes,
                    stage.activations_bytes,
                    stage.logits_bytes,
                    stage.total_bytes,
                    found.memory.capacity_bytes,
                )
            ),
        )
        for stage in _shown(found.memory)
    ]
    header = ("STAGE", "WEIGHTS", "OPTIMIZER", "ACTIVATIONS", "LOGITS", "SUM", "OF")
    yield from table(header, rows, right=range(7))
    overhead = f"{OVERHEAD_BYTES / GIB:.1f}"
    yield f"GiB per GPU; OF without the {overhead} that CUDA, NCCL and fragments take of it."
    yield ""
    speed = found.speed
    yield f"Step       {speed.step_seconds:.3g} s"
    parts = (
        ("computes", speed.compute_seconds),
        ("sends", speed.communication_seconds),
        ("waits in the pipeline", speed.bubble_seconds),
        ("optimizer", speed.optimizer_seconds),
    )
    shares = [f"{name} {part / speed.step_seconds:.0%}" for name, part in parts]
    yield f"           {', '.join(shares)}"
    likely = f"most likely {speed.low:,.0f} to {speed.high:,.0f}"
    yield f"Tokens/s   {speed.tokens_per_second_per_gpu:,.0f} a GPU, {likely}"
    yield f"TFLOP/s    {speed.tflops_per_gpu:.0f} a GPU, MFU {speed.mfu:.1%}"
