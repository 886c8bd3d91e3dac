"""Megatron's own training loop on CPUs, for train_megatron.py with MEGATRON_LM set to this folder.

The wheel of megatron-core has the loop but not Megatron-LM's pretrain_gpt.py, whose part this
takes. It takes the arguments of a GPU job; cpu_arguments.py says what becomes of them.
"""

import gc
import sys

# Imports make a million objects that stay: looking for garbage among them takes a tenth of the
# time.
gc.disable()
# First, and here at the top: the processes that save checkpoints import this file, and need it too.
import cpu_torch  # noqa: E402, F401 -- imported for what it does to torch
from cpu_arguments import on_cpu  # noqa: E402 -- as above

gc.enable()


def main() -> None:
    """Train as the command line says."""
    gc.disable()
    import cpu_training  # noqa: PLC0415 -- the processes that save do without

    gc.freeze()
    gc.enable()
    sys.argv[1:] = on_cpu(sys.argv[1:])
    cpu_training.run()


if __name__ == "__main__":
    main()
