"""Trains a Llama, Mistral or GPT with DistributedDataParallel: every rank holds the whole model.

torchrun --nproc-per-node N -m megatron_eks.programs.train_ddp --config FILE

Everything but the layout is train_fsdp's: the file, the checkpoints (either program resumes the
other's), the metrics and the exit codes. `training.sharding` has no meaning here.
"""

import sys

from megatron_eks.programs.start import guard

if __name__ == "__main__":
    guard.require("train_ddp", "pydantic")
    from megatron_eks.programs.trainer.parallel import copy
    from megatron_eks.programs.trainer.run import main

    sys.exit(main("train_ddp", __doc__, copy, sys.argv[1:]))
