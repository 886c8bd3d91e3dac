"""Where the programs that containers run are, and the options of those that jobs start.

`=` marks one with a value, `!` one that must be given.
"""

PACKAGE = "megatron_eks.programs"
"""What `python3 -m` and `torchrun -m` find in the images."""

ZIP = "programs.zip"
"""The programs among the files of a job whose image is the user's: `python3 ZIP PROGRAM`."""

UNPACKED = "/opt/megatron-eks/packages"
"""The same in our images, where Python starts a folder as it starts a zip."""

_START = "--expect-efa= --expect-gpu-direct --heartbeats= --watch="
_TRAINER = f"--config=! --device= --compile= {_START}"
PROGRAM_OPTIONS = {
    "allreduce_bench": "--min-bytes= --max-bytes= --pass-busbw-gb-s=",
    "convert_checkpoint": "--direction=! --source=! --target=! --model=",
    "dev": "--idle-minutes= --gpus --code= --directory=",
    "efa_check": "--expect=! --root=",
    "fetch": "--model= --tokenizer= --s3-uri= --directory=! --token-file=",
    "prepare_data": "--input=! --output-prefix=! --tokenizer=! --json-key= --append-eod "
    "--add-bos --on-bad-line= --workers= --backend= --resume --commit-seconds= "
    "--shards= --shard-index= --verify=",
    "storage_bench": "--directory=! --size-gib= --processes= --pass-mb-s=",
    "torchrun_node": "--code= --directory= --checkpoints= --complete-marker= --keep-last= "
    "--s3-uri=",
    "torchrun_rank": f"--directory= --script= --module= --distributed-timeout-minutes= {_START}",
    "train_bridge": f"--recipe=! --config=! {_START}",
    "train_ddp": _TRAINER,
    "train_fsdp": _TRAINER,
    "train_megatron": f"--keep-last=! --s3-uri= {_START}",
}
