"""Trains a Llama, Mistral or GPT with DistributedDataParallel: every rank holds the whole model.

torchrun --nproc-per-node N train_ddp.py --config FILE

Everything but the layout is train_fsdp.py's: the file, the checkpoints (either program resumes the
other's), the metrics and the exit codes. `training.sharding` has no meaning here.
"""

import sys

from trainer_parallel import copy
from trainer_run import main

if __name__ == "__main__":
    sys.exit(main("train_ddp", __doc__, copy, sys.argv[1:]))
