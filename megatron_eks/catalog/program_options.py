"""The options of the programs in assets/programs that jobs start.

`=` marks one with a value, `!` one that must be given.
"""

_START = "--expect-efa= --expect-gpu-direct --heartbeats= --watch="
_TRAINER = f"--config=! --device= --compile= --distributed-timeout-minutes= {_START}"
PROGRAM_OPTIONS = {
    "allreduce_bench.py": "--min-bytes= --max-bytes= --pass-busbw-gb-s= --device= "
    "--timeout-seconds=",
    "convert_checkpoint.py": "--direction=! --source=! --target=! --model= --dtype= --hf-config=",
    "efa_check.py": "--expect=! --root=",
    "fetch.py": "--model= --tokenizer= --s3-uri= --directory=! --revision= --token-file=",
    "prepare_data.py": "--input=! --output-prefix=! --tokenizer=! --json-key= --append-eod "
    "--add-bos --on-bad-line= --max-line-mib= --workers= --backend= --resume --commit-seconds= "
    "--shards= --shard-index= --merge --verify= --global-batch-size= --sequence-length= "
    "--train-iters= --split=",
    "storage_bench.py": "--directory=! --size-gib= --seconds= --processes= --pass-mb-s=",
    "train_bridge.py": f"--recipe=! --config=! {_START}",
    "train_ddp.py": _TRAINER,
    "train_fsdp.py": _TRAINER,
    "train_megatron.py": f"--keep-last=! --s3-uri= --wait-seconds= {_START}",
}
