"""What stands here for keys that other tools have, whatever their spelling."""

import re
from collections.abc import Collection, Iterable

from megatron_eks.config.foreign_cluster_keys import OF_CLUSTERS
from megatron_eks.config.foreign_job_keys import OF_JOBS, OF_TRAINING
from megatron_eks.config.slips import by_word

_OF_CLUSTERS = {block: by_word(remedies) for block, remedies in OF_CLUSTERS.items()}
_OF_JOBS = {block: by_word(remedies) for block, remedies in (OF_JOBS | OF_TRAINING).items()}
# POSIX, "Environment Variables": uppercase letters, digits and '_'.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
# A type of EC2, such as p6-b200.48xlarge.
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def of_other_tool(key: str, known: Iterable[str]) -> str | None:
    """Say what stands here for a key that another tool has, whatever its spelling."""
    if _VARIABLE.fullmatch(key) and not {"env", "runtime"}.isdisjoint(known):
        block = "env" if "env" in known else "runtime.env"
        return f"use {block}: {key} is a variable of the environment"
    if _TYPE.fullmatch(key) and "instance_hour" in known:
        return f"use instance_hour: {{{key}: ...}}"
    plain = re.sub(r"[-_]", "", key).lower()
    tables = (_OF_CLUSTERS | _OF_JOBS).items()
    found = (table[plain] for name, table in tables if name in known and plain in table)
    return next(found, None)


# The block of a training job that a table is about; of two programs' the second is PyTorch's own.
_BLOCKS = {
    "parallelism": "expert_tensor",
    "training": "train_iters",
    "checkpoint": "keep_last",
    "data": "split",
    "model": "num_attention_heads",
    "runtime": "shm_gib",
}
_OF_PYTORCH = {"training": "max_steps", "data": "configuration"}


def of_other_block(key: str, blocks: Collection[str]) -> str | None:
    """Say what stands in another block of a job for a key, where other tools have no blocks."""
    plain = re.sub(r"[-_]", "", key).lower()
    tables = _BLOCKS if "parallelism" in blocks else _BLOCKS | _OF_PYTORCH
    for block, table in tables.items():
        remedy = _OF_JOBS[table].get(plain) if block in blocks else None
        if remedy is None:
            continue
        named = re.match(r"use ([a-z_]+)(.*)", remedy)
        return f"use {block}.{named[1]}{named[2]}" if named and "." not in named[1] else remedy
    return None
