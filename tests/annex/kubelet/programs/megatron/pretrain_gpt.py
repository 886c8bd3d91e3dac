"""Megatron in miniature, whose ranks raise nothing when a peer is gone: as NCCL's, they wait.

Each step is an all-reduce over gloo. Rank 0 records it in RECORD/steps.jsonl, from which the next
start continues; the run ends once RECORD/finish exists.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

_STEP_SECONDS = 0.1
_TIMEOUT_SECONDS = float(os.environ.get("BLOCKED_SECONDS", "3600"))


def main() -> None:
    """Step until told to finish."""
    folder = Path(sys.argv[sys.argv.index("--record") + 1])
    record = folder / "steps.jsonl"
    dist.init_process_group("gloo")
    step = start = len(record.read_text().splitlines()) if record.exists() else 0
    stop = torch.zeros(1)
    while not stop:
        try:
            total = torch.tensor([float(dist.get_rank() + 1)])
            dist.all_reduce(total)
            stop = torch.tensor([float((folder / "finish").exists())])
            dist.broadcast(stop, src=0)
        except RuntimeError:
            time.sleep(_TIMEOUT_SECONDS)
            raise
        step += 1
        if dist.get_rank() == 0:
            entry = {"step": step, "start": start, "sum": total.item(), "time": time.time()}
            entry |= {"world": dist.get_world_size()}
            with record.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        time.sleep(_STEP_SECONDS)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
