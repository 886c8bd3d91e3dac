"""What stands here for keys that other tools have, whatever their spelling."""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

import yaml

from megatron_eks.config.slips import by_word

# POSIX, "Environment Variables": uppercase letters, digits and '_'.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
# A type of EC2, such as p6-b200.48xlarge.
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    """Return the remedies of names, by a key that tells the block."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return {block: by_word(remedies) for block, remedies in yaml.safe_load(text).items()}


def of_other_tool(key: str, known: Iterable[str]) -> str | None:
    """Say what stands here for a key that another tool has, whatever its spelling."""
    if _VARIABLE.fullmatch(key) and not {"env", "runtime"}.isdisjoint(known):
        block = "env" if "env" in known else "runtime.env"
        return f"use {block}: {key} is a variable of the environment"
    if _TYPE.fullmatch(key) and "instance_hour" in known:
        return f"use instance_hour: {{{key}: ...}}"
    plain = re.sub(r"[-_]", "", key).lower()
    tables = (table for name, table in _tables().items() if name in known)
    found = (table[plain] for table in tables if plain in table)
    return next(found, None)


# The block of a training job that tables are about; PyTorch's programs have some of their own.
_BLOCKS = {
    "parallelism": ("expert_tensor",),
    "training": ("train_iters", "learning_rate"),
    "checkpoint": ("keep_last",),
    "data": ("split",),
    "model": ("num_attention_heads",),
    "runtime": ("shm_gib",),
}
_OF_PYTORCH = {"training": ("max_steps", "learning_rate"), "data": ("configuration",)}


def of_other_block(key: str, blocks: Collection[str]) -> str | None:
    """Say what stands in another block of a job for a key, where other tools have no blocks."""
    plain = re.sub(r"[-_]", "", key).lower()
    named = _BLOCKS if "parallelism" in blocks else _BLOCKS | _OF_PYTORCH
    for block, tables in named.items():
        remedies = (_tables()[table].get(plain) for table in tables if block in blocks)
        remedy = next(filter(None, remedies), None)
        if remedy is None:
            continue
        use = re.match(r"use ([a-z_]+)(.*)", remedy)
        return f"use {block}.{use[1]}{use[2]}" if use and "." not in use[1] else remedy
    return None
