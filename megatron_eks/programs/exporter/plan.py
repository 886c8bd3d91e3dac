"""What a job's manifest tells the exporter of it."""

import json
from dataclasses import asdict, dataclass, fields

VARIABLE = "MEGATRON_EKS_METRICS"
"""Holds a `Plan` as JSON; without it nothing is told."""


@dataclass(frozen=True)
class Plan:
    """What the plan knows of the job; what nobody predicted is None."""

    job: str
    kind: str
    port: int
    """0 where nobody asks."""
    nodes: int = 1
    steps: int | None = None
    """Of the whole run."""
    tokens: int | None = None
    """Of a step, on all GPUs."""
    peak_seconds: float | None = None
    """How long a step's FLOPs take at the GPUs' peak: over a step's time it is the MFU."""
    step_seconds: float | None = None
    step_seconds_low: float | None = None
    step_seconds_high: float | None = None
    goodput: float | None = None
    log_interval: int = 1
    save_interval: int | None = None
    """In steps."""
    start_seconds: float = 1800.0
    """In which the first step has to come."""
    metrics_file: str | None = None
    """Where our trainers write their steps."""
    event_files: str | None = None
    """Below which folder a program of the user's writes for TensorBoard."""
    gpus: int | None = None
    """Of all nodes, where a program may tell what one of them does."""
    mlflow: bool | None = None
    """Whether steps go there from here: Megatron-LM writes to none."""

    def __str__(self) -> str:
        """Return it as JSON, without what is not known."""
        return json.dumps({key: value for key, value in asdict(self).items() if value is not None})

    @classmethod
    def read(cls, text: str) -> "Plan":
        """Return what a text holds; an image may be older than what renders its jobs."""
        known = {each.name for each in fields(cls)}
        return cls(**{key: value for key, value in json.loads(text).items() if key in known})
