"""Where the programs that containers run are, and the options that those of jobs must be given."""

PACKAGE = "megatron_eks.programs"
"""What `python3 -m` and `torchrun -m` find in the images."""

ZIP = "programs.zip"
"""The programs among the files of a job whose image is the user's: `python3 ZIP PROGRAM`."""

UNPACKED = "/opt/megatron-eks/packages"
"""The same in our images, where Python starts a folder as it starts a zip."""

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
"""An image's self-test starts them all; a guard looks for the options in manifests."""
