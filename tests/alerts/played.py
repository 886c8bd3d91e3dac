"""A real run of train_ddp on a CPU, whose lines the real exporter of two pods takes.

run.log is its stderr. It is played a step a minute, and its times are stretched so. What goes wrong
is done to the lines, the clock or the counters; the exporter and its text are the product's own.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from megatron_eks.plan.cluster.observability import TRAINING
from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.exporter.plan import Plan
from megatron_eks.programs.exporter.run import Exporter
from tests.programs.efa_tree import Tree

MINUTES = 120
PLAN = Plan(
    *("tiny", "ddp", 9401),
    nodes=2,
    steps=500,
    tokens=128,
    peak_seconds=25.0,
    step_seconds=55.0,
    step_seconds_low=40.0,
    step_seconds_high=90.0,
    goodput=0.95,
    save_interval=20,
    start_seconds=1200.0,
)
LABELS = {"namespace": "megatron-workshop", "job": "tiny", "kind": "ddp"}
_STEP_SECONDS = 57.0
_EFA_BYTES = 10**9
_SECONDS = re.compile(r"([0-9.]+) s(?= \||$)", re.MULTILINE)
_SERIES = re.compile(r"(\w+)\{(.*)\} (\S+)")

Line = Callable[[int, str], str]
Recording = list[dict[str, str]]


@cache
def lines() -> list[str]:
    """Return a minute's lines each: a step, and the save after it where there was one."""
    text = (Path(__file__).parent / "run.log").read_text()
    taken = [float(found) for found in _SECONDS.findall(text)]
    factor = _STEP_SECONDS / statistics.mean(taken)

    def stretched(found: re.Match[str]) -> str:
        return f"{float(found[1]) * factor:.3f} s"

    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("step"):
            found.append(_SECONDS.sub(stretched, line.rstrip()) + "\n")
        else:
            found[-1] += line
    return found


class Clock:
    """The time of the recording, in seconds."""

    now = 0.0

    def __call__(self) -> float:
        """Return it."""
        return self.now


def play(
    folder: Path,
    *,
    line: Line = lambda _, text: text,
    until: int = MINUTES,
    restart: int | None = None,
    finishes: bool = False,
    efa_until: int = MINUTES,
    seen_every: int = 1,
    plan: Plan = PLAN,
) -> Recording:
    """Return what two pods tell in two hours; lines come only every so many minutes.

    `restart` is a minute in which the containers start again; from `until` on the pods are gone.
    """
    trees = [Tree(folder / f"pod-{node}", 1) for node in (0, 1)]
    series: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    pods, started, clock = [], 0, Clock()
    for minute in range(until):
        clock.now = 60.0 * minute
        if minute in (0, restart):
            started += 1
            start = folder / "logs" / f"{started:04}"
            start.mkdir(parents=True)
            pods = [
                Exporter(
                    plan,
                    node,
                    partial(Path, start),
                    clock=clock,
                    system=System(tree.root, {}),
                )
                for node, tree in enumerate(trees)
            ]
        if minute % seen_every == 0 and (text := line(minute, lines()[minute // seen_every])):
            pods[0].see(text.encode())
        for tree in trees:
            count = _EFA_BYTES * min(minute, efa_until)
            tree.set("ports/1/hw_counters/tx_bytes", f"{count}\n")
            tree.set("ports/1/hw_counters/retrans_pkts", f"{minute}\n")
        if finishes and minute == until - 1:
            pods[0].finish()
        for node, pod in enumerate(pods):
            pod.look()
            for name, labels, value in _SERIES.findall(pod.text()):
                where = f'{labels},namespace="megatron-workshop",pod="tiny-{node}"'
                series[name, where][minute] = value
            up = f'job="{TRAINING}",namespace="megatron-workshop",pod="tiny-{node}"'
            series["up", up][minute] = "1"
    return [
        {"series": f"{name}{{{labels}}}", "values": _values(found, until)}
        for (name, labels), found in series.items()
    ]


def _values(found: dict[int, str], until: int) -> str:
    """Write samples of each minute; a series that its pod takes with it ends as stale."""
    words = [found.get(minute, "_") for minute in range(until)]
    return " ".join([*words, *(["stale"] if until < MINUTES else [])])
