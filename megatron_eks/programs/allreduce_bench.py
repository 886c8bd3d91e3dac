"""Measures all-reduce between all ranks, as nccl-tests does, and checks every result.

torchrun -m megatron_eks.programs.allreduce_bench --min-bytes A --max-bytes B [--pass-busbw-gb-s X]

Message sizes double from A to B (8 B to 16 GiB is usual; `64K`, `1G` mean powers of 1024). NCCL
on GPUs, gloo on CPUs. Columns as nccl-tests defines them: time is that of one all-reduce, algbw
= size / time, busbw = algbw * 2(n-1)/n, in GB/s of 10^9 bytes. The mark is held against the best
busbw among messages of 1 GiB and more, or the largest message where all are smaller. A size that
does not fit into memory ends the table and is said.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 4 a result is wrong or below the mark.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.programs import program
from megatron_eks.programs.program import Report

if TYPE_CHECKING:
    from torch import Tensor

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_ITEM_BYTES = 4
_MARK_BYTES = 2**30
# Up to so many bytes: rounds to warm up, and timed ones. Small messages need many for a steady
# number, large ones time.
_ROUNDS = ((2**20, 5, 100), (2**26, 5, 40), (2**30, 2, 20), (math.inf, 2, 10))
# Of CPU memory, where too much ends the process instead of raising an error; gloo copies a message.
_MEMORY_SHARE = 0.4
_TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True)
class Row:
    """One message size."""

    bytes: int
    seconds: float
    """Of one all-reduce; the slowest rank's, averaged over the rounds."""
    algbw_gb_s: float
    busbw_gb_s: float
    wrong: int
    """Elements that are not the sum, over all ranks."""


def bandwidths(size: int, seconds: float, ranks: int) -> tuple[float, float]:
    """Return algbw and busbw in GB/s.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    algbw = size / seconds / 1e9
    return algbw, algbw * 2 * (ranks - 1) / ranks


class Bench:
    """One rank of the measurement."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 -- `--help` and a wrong option need no torch
        from torch import distributed  # noqa: PLC0415 -- as above

        self.torch, self.distributed = torch, distributed
        self.cuda = torch.cuda.is_available()
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device(f"cuda:{local}" if self.cuda else "cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
            distributed.init_process_group("nccl", timeout=_TIMEOUT, device_id=self.device)
        else:
            distributed.init_process_group("gloo", timeout=_TIMEOUT)
        self.rank, self.ranks = distributed.get_rank(), distributed.get_world_size()

    def measure(self, size: int) -> Row | None:
        """Measure one size; None if it does not fit into some rank's memory."""
        buffer = self._buffer(size)
        if self._reduce(float(buffer is None)) or buffer is None:
            return None
        warm_up, timed = next((few, many) for most, few, many in _ROUNDS if size <= most)
        wrong = self._wrong(buffer)
        for _ in range(warm_up):
            self.distributed.all_reduce(buffer)
        self._settle()
        # Zero stays zero: repeated sums of anything else overflow.
        buffer.zero_()
        self.distributed.barrier()
        self._settle()
        start = time.perf_counter()
        for _ in range(timed):
            self.distributed.all_reduce(buffer)
        self._settle()
        seconds = self._reduce((time.perf_counter() - start) / timed, "MAX")
        algbw, busbw = bandwidths(buffer.numel() * _ITEM_BYTES, seconds, self.ranks)
        return Row(size, seconds, algbw, busbw, wrong)

    def run(self, size: int, most: int) -> list[Row]:
        """Measure sizes that double, for as long as they fit; rank 0 prints a line for each."""
        say = program.say if self.rank == 0 else lambda _: None
        say(f"{'size (B)':>14} {'time (us)':>12} {'algbw (GB/s)':>13} {'busbw (GB/s)':>13} wrong")
        rows: list[Row] = []
        while size <= most and (row := self.measure(size)):
            rates = f"{row.algbw_gb_s:>13.2f} {row.busbw_gb_s:>13.2f}"
            say(f"{row.bytes:>14} {row.seconds * 1e6:>12.1f} {rates} {row.wrong:>5}")
            rows.append(row)
            size *= 2
        # Together, so that no rank loses a peer in the middle.
        self.distributed.barrier()
        self.distributed.destroy_process_group()
        return rows

    def _buffer(self, size: int) -> "Tensor | None":
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if not self.cuda and size > _MEMORY_SHARE * _free_memory_bytes() / local:
            return None
        try:
            return self.torch.empty(size // _ITEM_BYTES, device=self.device)
        except self.torch.OutOfMemoryError:
            return None

    def _wrong(self, buffer: "Tensor") -> int:
        """Sum numbers that differ by rank and place, and count wrong elements of all ranks."""
        # Whole numbers below 2^24, which float32 adds exactly in any order. Filled and compared by
        # chunks, so that the check needs no second buffer.
        chunks = buffer.split(2**24)
        for chunk in chunks:
            self._pattern(chunk).add_(self.rank)
        self.distributed.all_reduce(buffer)
        wrong = 0
        base = self.ranks * (self.ranks - 1) / 2
        for chunk in chunks:
            expected = self._pattern(self.torch.empty_like(chunk)).mul_(self.ranks).add_(base)
            wrong += int((chunk != expected).sum())
        return int(self._reduce(float(wrong)))

    def _pattern(self, chunk: "Tensor") -> "Tensor":
        self.torch.arange(chunk.numel(), out=chunk)
        return chunk.remainder_(251)

    def _settle(self) -> None:
        if self.cuda:
            self.torch.cuda.synchronize()

    def _reduce(self, number: float, how: str = "SUM") -> float:
        total = self.torch.tensor(number, dtype=self.torch.float64, device=self.device)
        self.distributed.all_reduce(total, op=getattr(self.distributed.ReduceOp, how))
        return float(total.item())


def judge(rows: Sequence[Row], options: argparse.Namespace, report: Report) -> None:
    """Hold the rows against the mark, and note what was found."""
    report.facts.update(rows=[asdict(row) for row in rows])
    if not rows:
        report.error("memory", f"{options.min_bytes} bytes do not fit", "use a smaller --min-bytes")
        return
    large = [row for row in rows if row.bytes >= _MARK_BYTES]
    best = max(large or rows[-1:], key=lambda row: row.busbw_gb_s)
    mark = options.pass_busbw_gb_s
    report.facts.update(best_busbw_gb_s=best.busbw_gb_s, best_bytes=best.bytes)
    report.facts.update(pass_busbw_gb_s=mark)
    for row in filter(lambda each: each.wrong, rows):
        remedy = "take the node with GPU errors out (nvidia-smi, dmesg), and measure again"
        report.error(f"{row.bytes} bytes", f"{row.wrong} elements are not the sum", remedy)
    if 2 * rows[-1].bytes <= options.max_bytes:
        found = f"{2 * rows[-1].bytes} bytes do not fit into every rank's memory"
        report.warning("memory", found, "the table ends before --max-bytes")
    if mark is not None and best.busbw_gb_s < mark:
        found = f"{best.busbw_gb_s:.2f} GB/s at {best.bytes} bytes, the mark is {mark:g}"
        remedy = "below 10 GB/s NCCL uses TCP: read its log and run efa_check; else test the "
        report.error("busbw", found, f"{remedy}nodes in pairs to find the slow one")


def main(argv: Sequence[str], report: Report) -> None:
    """Measure on all ranks; rank 0 prints and judges."""
    parser = program.parser(__doc__)
    parser.add_argument("--min-bytes", type=_size, required=True, help="smallest message")
    parser.add_argument("--max-bytes", type=_size, required=True, help="largest message")
    parser.add_argument("--pass-busbw-gb-s", type=float, help="least busbw that passes")
    options = parser.parse_args(argv)
    if options.max_bytes < options.min_bytes:
        parser.error("--max-bytes is less than --min-bytes")
    if "WORLD_SIZE" not in os.environ:
        parser.error("no WORLD_SIZE in the environment - start it with torchrun")
    bench = Bench()
    report.facts.update(ranks=bench.ranks, device=bench.device.type)
    rows = bench.run(options.min_bytes, options.max_bytes)
    if bench.rank == 0:
        judge(rows, options, report)
        if bench.ranks == 1:
            report.warning("ranks", "only one, so nothing was sent", "start it with torchrun")


def _free_memory_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024


def _size(text: str) -> int:
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    number = int(text[: len(text) - len(unit)]) * _UNITS[unit] if unit in _UNITS else 0
    if number < _ITEM_BYTES or number % _ITEM_BYTES:
        found = f"{text!r} is no multiple of {_ITEM_BYTES} bytes - write for example 8, 64K or 1G"
        raise argparse.ArgumentTypeError(found)
    return number


if __name__ == "__main__":
    sys.exit(program.run("allreduce_bench", main, sys.argv[1:]))
