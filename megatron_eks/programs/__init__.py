"""What runs in the containers: `python -m megatron_eks.programs.NAME`, in images and checkouts."""

PROGRAM_OPTIONS = {
    "allreduce_bench": "--min-bytes --max-bytes",
    "convert_checkpoint": "--direction --source --target --model",
    "dev": "",
    "efa_check": "--expect",
    "fetch": "--directory",
    "prepare_data": "--input --output-prefix --tokenizer",
    "storage_bench": "--directory",
    "torchrun_node": "",
    "torchrun_rank": "",
    "train_bridge": "--recipe --config",
    "train_ddp": "--config",
    "train_fsdp": "--config",
    "train_megatron": "--keep-last",
}
"""Of jobs, with the options that each must be given: a guard looks for them, an image's self-test
starts all."""
