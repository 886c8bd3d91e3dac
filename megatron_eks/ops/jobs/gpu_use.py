"""What the GPUs and EFA interfaces of ranks do, asked of programs in their containers.

A rank that does not answer is one without numbers: it holds up neither the others nor the command.
"""

import queue
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise

from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.jobs import CONTAINER

AT_ONCE = 16
RANK_SECONDS = 10.0
ALL_SECONDS = 60.0
DEVICES = "/sys/class/infiniband"
"""Where the kernel shows EFA interfaces and their counters."""

# Port counters are of the whole node; between two looks lies a second by the kernel's clock. NCCL's
# own log, where the pod has one, says what it chose.
SCRIPT = r"""
query=index,utilization.gpu,memory.used,memory.total
nvidia-smi --query-gpu=$query --format=csv,noheader,nounits 2>&1 | while read -r line; do
  echo "gpu $line"
done
look() {
  read -r up rest < /proc/uptime; echo "at $up"
  for file in "$1"/*/ports/1/hw_counters/[rt]x_bytes; do
    [ -r "$file" ] && read -r bytes < "$file" && echo "efa ${file##*/} $bytes"
  done
}
look "$1"; sleep 1; look "$1"
files=$(echo "${NCCL_DEBUG_FILE:-}" | sed 's/%[hp]/*/g')
[ -n "$files" ] && grep -hoE '[Pp]rovider is [^ ,]+|Using network [A-Za-z]+( [A-Za-z]+)?' $files \
  2>/dev/null | sort -u | while read -r line; do echo "nccl $line"; done
exit 0
"""

_SECONDS = re.compile(r"\d+(\.\d+)?")
_PROVIDER = re.compile(r"(?:[Pp]rovider is|Using network) (.+)")
_FIELDS = 4
_GIGA = 1e9


@dataclass(frozen=True)
class Gpu:
    """One GPU, as nvidia-smi has it; None where the driver does not say."""

    index: int
    use_percent: int | None
    memory_used_mib: int | None
    memory_total_mib: int | None


@dataclass(frozen=True)
class Use:
    """What one rank's container says."""

    gpus: tuple[Gpu, ...] = ()
    efa_sent_gb_s: float | None = None
    """By all EFA interfaces of the node; None where it has none."""
    efa_received_gb_s: float | None = None
    networks: tuple[str, ...] = ()
    """What NCCL's log says that it chose."""
    note: str = ""
    """Why something is missing."""

    @property
    def efa(self) -> str:
        """Say whether EFA is in use."""
        if self.efa_sent_gb_s is not None and self.efa_received_gb_s is not None:
            return f"{self.efa_sent_gb_s:.1f}/{self.efa_received_gb_s:.1f} GB/s"
        return ", ".join(self.networks)


def ask(
    client: Client,
    namespace: str,
    ranks: Sequence[str],
    *,
    rank_seconds: float = RANK_SECONDS,
    all_seconds: float = ALL_SECONDS,
    devices: str = DEVICES,
) -> Mapping[str, Use]:
    """Ask ranks by their pods, so many at once; what has not answered in time says so."""
    # Each rank of a list is the next one for one thread alone.
    waiting = iter([*ranks])
    done: queue.SimpleQueue[tuple[str, Use]] = queue.SimpleQueue()
    deadline = time.monotonic() + all_seconds

    def work() -> None:
        while time.monotonic() < deadline and (rank := next(waiting, None)):
            left = min(rank_seconds, deadline - time.monotonic())
            done.put((rank, _ask(client, namespace, rank, left, devices)))

    for _ in range(min(AT_ONCE, len(ranks))):
        # Opening a connection has a time limit of its own, for which nobody waits.
        threading.Thread(target=work, daemon=True).start()
    found: dict[str, Use] = {}
    while len(found) < len(ranks):
        try:
            rank, use = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[rank] = use
    late = Use(note=f"no answer within {all_seconds:g} s")
    return {rank: found.get(rank, late) for rank in ranks}


def read(text: str) -> Use:
    """Read what SCRIPT printed."""
    gpus: list[Gpu] = []
    notes: list[str] = []
    networks: list[str] = []
    times: list[float] = []
    sums: list[dict[str, int]] = []
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "gpu":
            if gpu := _gpu(rest):
                gpus.append(gpu)
            else:
                notes.append(pods.one_line(rest))
        elif kind == "at" and _SECONDS.fullmatch(rest):
            times.append(float(rest))
            sums.append({})
        elif kind == "efa" and sums:
            name, _, value = rest.partition(" ")
            if value.isdecimal():
                sums[-1][name] = sums[-1].get(name, 0) + int(value)
        elif kind == "nccl" and (found := _PROVIDER.match(rest)):
            networks.append(found[1].strip())
    return Use(
        gpus=tuple(gpus),
        efa_sent_gb_s=_rate("tx_bytes", times, sums),
        efa_received_gb_s=_rate("rx_bytes", times, sums),
        networks=tuple(dict.fromkeys(networks)),
        note=notes[0] if notes and not gpus else "",
    )


def _ask(client: Client, namespace: str, pod: str, seconds: float, devices: str) -> Use:
    from megatron_eks.kubernetes import execution  # noqa: PLC0415 -- slow to import, seldom needed

    command = ["sh", "-c", SCRIPT, "sh", devices]
    try:
        ended = execution.run(client, namespace, pod, CONTAINER, command, timeout=seconds)
    except TimeoutError:
        return Use(note=f"no answer within {seconds:.0f} s")
    except UnreachableError as error:
        return Use(note=pods.one_line(str(error)))
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return Use(note="you may not run commands in pods (pods/exec)")
        return Use(note=pods.one_line(str(error)) or f"HTTP status {error.status}")
    return read(ended.text)


def _gpu(text: str) -> Gpu | None:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != _FIELDS or not parts[0].isdecimal():
        return None
    use, used, total = (int(part) if part.isdecimal() else None for part in parts[1:])
    return Gpu(int(parts[0]), use, used, total)


def _rate(name: str, times: Sequence[float], sums: Sequence[Mapping[str, int]]) -> float | None:
    """Return GB/s between the two looks."""
    for (before, after), (first, last) in zip(pairwise(sums), pairwise(times), strict=True):
        if name in before and name in after and last > first:
            # A counter that begins anew belongs to a device that was reset.
            return max(0, after[name] - before[name]) / (last - first) / _GIGA
    return None
