"""Asks megatron-core's own parser, validation and configurations about lists of arguments.

Reads `[ARGUMENTS, RANKS, COMPUTE CAPABILITY, ENVIRONMENT]` a line from stdin, and answers each with
a line: what Megatron says against them, as a JSON string, or null.
Runs where megatron-core is installed, on a machine without a GPU, and imports nothing of ours.
"""

import argparse
import contextlib
import importlib.machinery
import io
import itertools
import json
import logging
import os
import sys
import traceback
import types
from typing import Any

import torch
from megatron.core import msc_utils, utils
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.utils import is_layer_window_attention
from megatron.training import arguments as megatron_arguments
from megatron.training import training
from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
from megatron.training.vocab_utils import calculate_padded_vocab_size
from packaging.version import Version


class _FusedAdam:
    """Has the arguments by which Megatron tells what Transformer Engine's can do."""

    def __init__(
        self,
        *,
        master_weight_dtype: object,
        exp_avg_dtype: object,
        exp_avg_sq_dtype: object,
        use_decoupled_grad: object,
        store_param_remainders: object,
    ) -> None: ...


def _stand_in(name: str, **content: object) -> None:
    """Let a module of the image be found that is only asked for here, and what it is in."""
    for place in itertools.accumulate(name.split("."), "{}.{}".format):
        module = sys.modules.setdefault(place, types.ModuleType(place))
        module.__spec__ = importlib.machinery.ModuleSpec(place, None, is_package=True)
    sys.modules[name].__dict__.update(content)


# After Megatron's own imports, which take Transformer Engine's layers where there is one. Its
# version is above all that this Megatron asks for.
_stand_in(
    "nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager",
    LocalCheckpointManager=None,
)
_stand_in("transformer_engine.pytorch.optimizers", FusedAdam=_FusedAdam)
utils._te_version = Version("2.99")  # noqa: SLF001 -- where it keeps what it found
msc_utils.msc = object()
rope_utils.fused_apply_rotary_pos_emb = object()
for _kernel in (name for name in vars(moe_utils) if name.startswith("fused_")):
    setattr(moe_utils, _kernel, object())

# The tokenizer is a file of the cluster's.
_VOCABULARY = 1 << 17
_OPTIMIZER = types.SimpleNamespace(param_groups=[])
# A thousand options take a tenth of a second to make, and are the same for every question.
_PARSER = megatron_arguments.add_megatron_arguments(
    argparse.ArgumentParser("megatron", allow_abbrev=False)
)
megatron_arguments.add_megatron_arguments = lambda _: _PARSER


def main() -> None:
    """Answer every question, whatever became of the ones before."""
    # Layouts are logged where the answers go.
    logging.disable()
    # Megatron may print, or read: neither is between us and who asks.
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in questions:
        answers.write(f"{json.dumps(_refusal(*json.loads(line)))}\n")
        answers.flush()


def _refusal(
    words: list[str], ranks: int, capability: list[int], environment: dict[str, str]
) -> str | None:
    """Return what Megatron says against the arguments, and None where it takes them."""
    os.environ.clear()
    os.environ.update(environment, WORLD_SIZE=str(ranks), RANK="0")
    major, minor = capability
    device = types.SimpleNamespace(major=major, minor=minor, name="GPU", total_memory=80 << 30)
    cuda: Any = torch.cuda
    cuda.get_device_properties = lambda *_: device
    cuda.get_device_capability = lambda *_: (major, minor)
    sys.argv[1:] = words
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            _start(megatron_arguments.validate_args(megatron_arguments.parse_args(), {}))
    except SystemExit:
        return (said.getvalue().strip() or "it ends without a word").splitlines()[-1]
    except OSError:
        return None  # a file of the cluster's
    except Exception as problem:  # noqa: BLE001 -- whatever Megatron refuses with
        # Some of its assertions say nothing but what they assert.
        asserted = traceback.extract_tb(problem.__traceback__)[-1].line
        return f"{type(problem).__name__}: {str(problem).strip() or asserted}"
    return None


def _start(arguments: argparse.Namespace) -> None:
    """Make what Megatron makes of its arguments before it trains, but the model."""
    arguments.vocab_size = _VOCABULARY
    arguments.padded_vocab_size = calculate_padded_vocab_size(
        _VOCABULARY, arguments.make_vocab_size_divisible_by, arguments.tensor_model_parallel_size
    )
    for layer in range(1, arguments.num_layers + 1):
        is_layer_window_attention(arguments.window_size, arguments.window_attn_skip_freq, layer)
    pretrain_cfg_container_from_args(arguments, gpt_config_from_args(arguments))
    training.get_args = lambda: arguments
    training.get_optimizer_param_scheduler(_OPTIMIZER)


if __name__ == "__main__":
    main()
