"""A training run in miniature: in the place of the real program, with the real one's arguments.

Each step is an all-reduce over gloo. Rank 0 records it in LOG_DIR/steps.jsonl, from which the next
start continues; the run ends once LOG_DIR/finish exists.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

_STEP_SECONDS = 0.1


def main() -> None:
    """Step until told to finish."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log-dir", type=Path, required=True)
    log_dir: Path = parser.parse_known_args()[0].log_dir
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / f"rank-{os.environ['RANK']}").write_text(str(os.getpid()))
    dist.init_process_group("gloo")
    record = log_dir / "steps.jsonl"
    step = len(record.read_text().splitlines()) if record.exists() else 0
    start = step
    stop = torch.zeros(1)
    while not stop:
        # Nobody writes the next step while another process still counts the last ones.
        total = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(total)
        stop = torch.tensor([float((log_dir / "finish").exists())])
        dist.broadcast(stop, src=0)
        step += 1
        if dist.get_rank() == 0:
            entry = {"step": step, "start": start, "sum": total.item()}
            entry |= {"world": dist.get_world_size()}
            with record.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        time.sleep(_STEP_SECONDS)
    sys.stdout.write(f"rank {dist.get_rank()} finished at step {step}\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
