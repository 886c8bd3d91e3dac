"""Trains a Llama, Mistral or GPT with FSDP2: every rank holds a part of weights and optimizer.

torchrun --nproc-per-node N -m megatron_eks.programs.train_fsdp --config FILE

FILE has the blocks model, training, data and checkpoint of a job file, as YAML or JSON. A run
resumes from the newest whole checkpoint in checkpoint.directory, on any number of ranks; SIGTERM
makes it save and end. Each step is a line of metrics.jsonl in that directory. Where
checkpoint.s3_uri is given, checkpoint_sync copies each whole checkpoint there meanwhile, and
the last one before the job ends.

Exit codes: 0 done, 1 failed, 2 the configuration is wrong, 4 a check failed (data, weights, or a
loss that is no number any more), 130 saved and ended before the last step. The last line on stdout
is one JSON object, from rank 0.
"""

import sys

from megatron_eks.programs.start import guard

if __name__ == "__main__":
    guard.require("train_fsdp", "pydantic")
    from megatron_eks.programs.trainer.parallel import shard
    from megatron_eks.programs.trainer.run import main

    sys.exit(main("train_fsdp", __doc__, shard, sys.argv[1:]))
