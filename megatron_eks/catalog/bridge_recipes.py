"""Every recipe of Megatron-Bridge that `train_bridge` finds by its name.

Source: NVIDIA-NeMo/Megatron-Bridge, names that end in `_config` in the __init__.py files below
src/megatron/bridge/recipes, of v0.5.1, v0.6.0 and 067f987 (0.7, 2026-08), and what else 0.6.2 has;
read on 2026-11-24.
"""

import re
from collections.abc import Iterator

from megatron_eks.catalog.tables import entries, sections

_TABLE = sections("bridge_recipes.txt")
_GPUS = re.compile(r"_\d+gpu_[a-z0-9]+_[a-z0-9]+(_32nodes)?(?=_)")
_BARE = re.compile(r"_(\d+)(?=_|$)")


def _read() -> Iterator[str]:
    yield from ("deepseek_v3_pretrain_config_32nodes", "qwen2_audio_7b_finetune_config")
    for model, recipes in entries(_TABLE["recipes"]):
        for recipe in recipes.split():
            whole = _BARE.sub(r"_\1gpu_h100_bf16", recipe, count=1)
            name = f"{model}_{whole}_config"
            yield from (name, _GPUS.sub("", name))


RECIPES = frozenset(_read()) - set(_TABLE["without_short_name"].split())
