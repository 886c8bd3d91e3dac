"""A training that goes on until the file `end` is there, and whose first rank fails for `fail`."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
number = torch.ones(1)
dist.all_reduce(number)
words = ("met", dist.get_rank(), dist.get_world_size(), os.environ["TORCHELASTIC_RUN_ID"])
print(*words, flush=True)  # noqa: T201 -- a program here
while True:
    # All read it in one round, or one would wait for a rank that is gone.
    number[0] = dist.get_rank() == 0 and (folder / "end").exists()
    dist.all_reduce(number)
    if number.item():
        break
    if dist.get_rank() == 0 and (folder / "fail").exists():
        (folder / "fail").unlink()
        sys.exit(3)
    time.sleep(0.1)
dist.destroy_process_group()
