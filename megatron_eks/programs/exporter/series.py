"""The series that a pod tells of its run, as text.

Text format: Prometheus, "Exposition formats".
"""

import math
from collections.abc import Iterable, Mapping

EFA_COUNTERS = (
    *("tx_bytes", "rx_bytes", "rdma_read_bytes", "rdma_write_bytes"),
    *("retrans_pkts", "rx_drops"),
)
"""Of each device (kernel/linux/efa/src/efa_verbs.c of amzn-drivers): what moves, what is lost."""

SERIES: Mapping[str, tuple[str, str]] = {
    "step": ("gauge", "newest optimizer step"),
    "steps": ("gauge", "last step of the run"),
    "loss": ("gauge", "loss of the newest step; NaN where it is no number"),
    "grad_norm": ("gauge", "gradient norm before clipping"),
    "step_seconds": ("gauge", "duration of the newest step"),
    "tokens_per_second": ("gauge", "of all GPUs together"),
    "mfu_ratio": ("gauge", "share of the GPUs' peak"),
    "data_wait_seconds": ("gauge", "of the newest step, the wait for its batch"),
    "last_step_timestamp_seconds": ("gauge", "when the newest step was seen"),
    "silent_limit_seconds": ("gauge", "without a step, after which none is expected"),
    "start_limit_seconds": ("gauge", "the same before the first step"),
    "checkpoint_step": ("gauge", "step of the newest whole checkpoint"),
    "checkpoint_timestamp_seconds": ("gauge", "when it was whole"),
    "checkpoint_seconds": ("gauge", "how long it took to write"),
    "checkpoint_limit_seconds": ("gauge", "age at which the next one is overdue"),
    "goodput_ratio": ("gauge", "share of the time since the first start that counts"),
    "restarts": ("gauge", "starts after the first one"),
    "restart_timestamp_seconds": ("gauge", "when the newest restart began"),
    "start_timestamp_seconds": ("gauge", "when this start began"),
    "finished": ("gauge", "1 once the program has ended well"),
    "plan_step_seconds": ("gauge", "predicted"),
    "plan_step_seconds_low": ("gauge", "nearly no run like this is faster"),
    "plan_step_seconds_high": ("gauge", "nearly every run like this is as fast"),
    "plan_goodput_ratio": ("gauge", "expected, failures counted"),
    "shared_bytes": ("gauge", "size of the shared file system"),
    "shared_free_bytes": ("gauge", "what may still be written to it"),
    "efa_hw_counter_total": ("counter", "hardware counters of the pod's EFA devices"),
}
"""What is told, by name without the prefix: kind and meaning."""

PREFIX = "meks_"


def text_of(labels: str, values: Iterable[tuple[str, str, float]]) -> str:
    """Return series as text; each is a name, labels of its own, and a value."""
    lines, told = [], ""
    for name, more, value in values:
        if name != told:
            kind, meaning = SERIES[name]
            lines += [f"# HELP {PREFIX}{name} {meaning}", f"# TYPE {PREFIX}{name} {kind}"]
            told = name
        lines.append(f"{PREFIX}{name}{{{labels}{more}}} {_number(value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return f"{value:+}" if math.isinf(value) else repr(float(value))
