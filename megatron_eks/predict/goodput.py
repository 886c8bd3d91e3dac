"""How much of a run's time counts: failures, checkpoints, restarts, and the best interval.

Intervals: Young 1974 (doi 10.1145/361147.361115), Daly 2006 (doi 10.1016/j.future.2004.11.016),
Saxena et al. 2024 (arXiv 2410.18124) for the one that is best for availability. Efficiency: Daly's
exact form for failures that come at random; Kokolis et al. 2024 (arXiv 2410.21680) for ETTR.
"""

import math
from dataclasses import dataclass

_DAY_SECONDS = 86_400
_GIGA = 1e9

# Failures of 1,000 node-days, nodes of eight GPUs. Kokolis et al. 2024: 2.34 and 6.50 on two
# clusters of A100; Llama 3 405B, 419 in 54 days on 2,048 nodes of H100: 3.79 (arXiv 2407.21783);
# 504 B200 in 55 days: 2.9 (arXiv 2605.09370); BLOOM, 1-2 GPUs a week of 384: 3 to 6.
FAILURES_LOW, FAILURES, FAILURES_HIGH = 2.3, 3.8, 6.5

# From a failure to the first step of all ranks: notice, replace or restart, start, initialise.
# MegaScale (NSDI 2024) notices and diagnoses within ten minutes.
RESTART_SECONDS = 600.0

# An asynchronous save stops the step while tensors are copied to the host: PCIe 4 to 5, 16 GB/s.
_COPY_GB_S = 16.0
# Each keeps 62 %: a hundred leave nothing of any interval.
_SECTIONS = 100
# Beyond so many failures in one cycle nothing counts any more; exp overflows near 709.
_MOST = 500.0


@dataclass(frozen=True)
class Goodput:
    """What to expect of a run that saves every so often."""

    failure_seconds: float
    """Mean time between two failures of the job."""
    save_seconds: float
    """How long a checkpoint takes to be written."""
    stall_seconds: float
    """How long the run stands still for it, at the job's interval."""
    restart_seconds: float
    """From a failure to the next step, reading the checkpoint included."""
    interval_seconds: float
    """Between two saves, as the job says."""
    young_seconds: float
    """The interval that Young's formula gives; so the next, by theirs."""
    daly_seconds: float
    exact_seconds: float
    """Of the highest share of time that counts."""
    available_seconds: float
    best_interval_seconds: float
    """The exact one, or where a save takes longer than that, as long as a save."""
    best_interval_steps: int
    lost_seconds: float
    """What a failure costs on average: restart, and half an interval done again."""
    expected: float
    """Share of the time that counts, at the job's interval."""
    best: float
    """The same at the best interval."""
    low: float
    """At the highest published failure rate."""
    high: float
    """At the lowest."""


def mean_time_between_failures(nodes: int, per_thousand_node_days: float) -> float:
    """Return seconds between failures of a job on so many nodes."""
    return 1000 * _DAY_SECONDS / (per_thousand_node_days * nodes)


def young(failure_seconds: float, stall_seconds: float) -> float:
    """Return Young's interval between saves."""
    return math.sqrt(2 * failure_seconds * stall_seconds)


def daly(failure_seconds: float, stall_seconds: float) -> float:
    """Return Daly's higher-order interval; the mean time where a save takes twice that."""
    ratio = stall_seconds / (2 * failure_seconds)
    if ratio >= 1:
        return failure_seconds
    first = young(failure_seconds, stall_seconds)
    return first * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_seconds


def most_available(failure_seconds: float, restart_seconds: float, stall_seconds: float) -> float:
    """Return the interval that is best for availability, from one save's start to the next's."""
    squared = 2 * (failure_seconds + restart_seconds) * stall_seconds + stall_seconds**2
    return stall_seconds + math.sqrt(squared)


def efficiency(
    interval_seconds: float, failure_seconds: float, restart_seconds: float, stall_seconds: float
) -> float:
    """Return the share of time that counts, failures coming at random (Daly, equation 20)."""
    cycle = (interval_seconds + stall_seconds) / failure_seconds
    if cycle + restart_seconds / failure_seconds > _MOST:
        return 0.0
    again = math.exp(restart_seconds / failure_seconds) * math.expm1(cycle)
    return interval_seconds / (failure_seconds * again)


def best_interval(failure_seconds: float, restart_seconds: float, stall_seconds: float) -> float:
    """Return the interval of the highest efficiency, by golden sections around Young's."""
    low, high = stall_seconds / 100, 10 * failure_seconds
    shrink = (math.sqrt(5) - 1) / 2

    def wasted(interval: float) -> float:
        return -efficiency(interval, failure_seconds, restart_seconds, stall_seconds)

    for _ in range(_SECTIONS):
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        if wasted(left) <= wasted(right):
            high = right
        else:
            low = left
    return (low + high) / 2


@dataclass(frozen=True)
class Saving:
    """How a job saves, and to what."""

    checkpoint_bytes: int
    interval_steps: int
    asynchronous: bool
    write_bytes_per_second: float
    """Of the file system, as far as it is reached."""


def goodput(nodes: int, gpus: int, step_seconds: float, saving: Saving) -> Goodput:
    """Return what to expect of a run, with the published spread of failure rates.

    An asynchronous save stalls the run for the copy to the host, and the next save waits for it, so
    the best interval is never shorter than a save takes.
    """
    save = saving.checkpoint_bytes / saving.write_bytes_per_second
    copy = saving.checkpoint_bytes / gpus / (_COPY_GB_S * _GIGA)
    interval = saving.interval_steps * step_seconds
    stall = max(copy, save - interval) if saving.asynchronous else save
    restart = RESTART_SECONDS + save
    failure = mean_time_between_failures(nodes, FAILURES)
    pause = copy if saving.asynchronous else save
    exact = best_interval(failure, restart, pause)
    best = max(exact, save if saving.asynchronous else step_seconds)
    steps = max(1, math.ceil(best / step_seconds))

    def expected(rate: float, interval: float = interval, stall: float = stall) -> float:
        return efficiency(interval, mean_time_between_failures(nodes, rate), restart, stall)

    return Goodput(
        failure_seconds=failure,
        save_seconds=save,
        stall_seconds=stall,
        restart_seconds=restart,
        interval_seconds=interval,
        young_seconds=young(failure, pause),
        daly_seconds=daly(failure, pause),
        exact_seconds=exact,
        available_seconds=most_available(failure, restart, pause),
        best_interval_seconds=best,
        best_interval_steps=steps,
        lost_seconds=restart + interval / 2,
        expected=expected(FAILURES),
        best=expected(FAILURES, best, pause),
        low=expected(FAILURES_HIGH),
        high=expected(FAILURES_LOW),
    )
