"""`meks predict`: memory and speed of a run on hardware that the catalogue does not have."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding, Level, has_errors
from megatron_eks.config.load import Json
from megatron_eks.config.messages import messages
from megatron_eks.config.parse import parse
from megatron_eks.config.prediction import PredictionFile
from megatron_eks.ops.output import formatted
from megatron_eks.ops.planning.plan_jobs import memory_lines, speed_lines
from megatron_eks.ops.planning.plan_json import memory_as_json
from megatron_eks.plan.prediction import Prediction, check_prediction, predict, savings
from megatron_eks.predict.memory import GIB
from megatron_eks.predict.parameters import parameters
from megatron_eks.project import read_document


def run(file: Path, output: str) -> int:
    """Print what is to be expected; raise ConfigError where there is no such run."""
    document = read_document(file)
    wanted, findings = parse(document, PredictionFile)
    if wanted is not None and not has_errors(findings):
        findings += document.locate(check_prediction(wanted))
    if wanted is None or has_errors(findings):
        raise ConfigError(findings)
    found = predict(wanted)
    memory, speed = memory_as_json(found.memory), dict(asdict(found.speed))
    shown: Json = {"memory": memory, "throughput": speed}
    sys.stdout.write(formatted(output, _lines(wanted, found), lambda: shown))
    late = [*findings]
    missing = found.memory.per_gpu_bytes - found.memory.capacity_bytes
    if missing > 0:
        # What the run would take was asked for, and is answered: nothing is refused here.
        text = f"{missing / GIB:.1f} GiB a GPU are missing"
        changes = [f"{name} ({saved / GIB:.1f} less)" for name, saved in savings(wanted, found)]
        remedy = f"use {' or '.join(changes)}" if changes else "use more GPUs, or larger ones"
        code = Code.DOES_NOT_FIT if found.memory.surely_too_large else Code.FITS_TIGHTLY
        more = Finding(code, ("parallelism",), text, remedy, Level.WARNING)
        late += document.locate([more])
    sys.stderr.write(messages(late, sys.stderr))
    return 0


def _lines(wanted: PredictionFile, found: Prediction) -> Iterator[str]:
    gpus = f"{wanted.gpus} x {wanted.gpu.name}"
    yield f"{parameters(found.model) / 1e9:.3g} B parameters on {gpus}, {wanted.framework}"
    yield ""
    yield from memory_lines(found.memory)
    yield ""
    yield from speed_lines(found.speed)
