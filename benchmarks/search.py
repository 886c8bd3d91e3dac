"""How long the search over layouts takes: 405 B on 1,024 GPUs."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.timing import ROOT, verdict
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.job import MegatronRun
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.search import Candidate, search

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.timing import Row

_JOB = Path(ROOT) / "jobs" / "megatron-cpt-techpulse.yaml"
_BAR_SECONDS = 1.0


def example() -> "list[Candidate]":
    """Search the layouts of 405 B on 1,024 B200, the fastest first."""
    job, _ = parse_job(read_mapping(_JOB.read_text(encoding="utf-8"), _JOB.name))
    assert isinstance(job, MegatronRun)  # noqa: S101 -- the file is the project's own
    batch = job.training.model_copy(update={"global_batch_size": 1024})
    job = job.model_copy(update={"nodes": 128, "model": "llama-3.1-405b", "training": batch})
    return search(job, model_shape(job.model), INSTANCES["p6-b200.48xlarge"])


def rows() -> "Iterator[Row]":
    """Yield the time of one search in a process that is already warm."""
    start = time.perf_counter()
    found = example()
    seconds = time.perf_counter() - start
    name = f"search: 405 B on 1,024 GPUs, {len(found)} fit"
    yield name, f"{seconds:.2f} s", f"{_BAR_SECONDS:.0f} s", verdict(holds=seconds <= _BAR_SECONDS)
