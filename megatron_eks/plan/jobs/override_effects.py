"""What overrides of a Megatron-Bridge job would make of the run, though its configuration has them.

They are Megatron-LM's options of `catalog/megatron_conflicts.py` by Bridge's names. Sources: as
there; Megatron-Bridge, megatron/bridge/training/checkpointing.py and config.py (0.6).
"""

from collections.abc import Iterator

from megatron_eks.catalog.megatron_conflicts import (
    ALWAYS,
    FLEX_BETWEEN_NODES,
    PARTIAL,
    TRIALS,
    Conflict,
)
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.override_checks import Value

# Switches that are harmful in one position, each with its setting of Megatron-LM.
_ON = {
    "checkpoint.finetune": "finetune",
    "checkpoint.load_main_params_from_ckpt": "load_main_params_from_ckpt",
    "ddp.use_megatron_fsdp": "use_megatron_fsdp",
    "dist.use_megatron_fsdp": "use_megatron_fsdp",
    "dist.use_sharp": "use_sharp",
    "mixed_precision.fp16": "fp16",
    "model.fp16": "fp16",
    "train.skip_train": "skip_train",
    "validation.skip_train": "skip_train",
}
_OFF = {
    "checkpoint.load_optim": "no_load_optim",
    "checkpoint.save_optim": "no_save_optim",
    "checkpoint.save_rng": "no_save_rng",
}
# What is harmful whatever it is set to.
_SET = {
    "checkpoint.ckpt_step": "ckpt_step",
    "dataset.data_path": "train_data_path",
    "train.train_samples": "train_samples",
}
# Blocks that ConfigContainer has empty, and no recipe of pretraining fills; the program sets values
# of a block that is there.
_EMPTY = frozenset(
    {"ft", "inprocess_restart", "nvrx_straggler", "peft", "straggler", "tensor_inspect"}
)
_TRIALS = {
    "model.moe_router_force_biased": "moe_router_force_biased",
    "model.moe_router_force_load_balancing": "moe_router_force_load_balancing",
    "train.exit_duration_in_mins": "exit_duration_in_mins",
    "train.exit_interval": "exit_interval",
}


def check_effect(job: MegatronBridgeJob, name: str, value: Value) -> Iterator[Finding]:
    """Yield an override with which the run would not be the one that is planned."""
    path = ("overrides", name)
    refused = _refused(job, name, value)
    block = name.partition(".")[0]
    if block in _EMPTY:
        found = f"no recipe of pretraining has {block}, and the program stops at it"
        # An image of one's own may have recipes of its own.
        level = Level.ERROR if job.image == "megatron" else Level.WARNING
        yield Finding(Code.OVERRIDE, path, found, "remove it", level)
    elif refused is not None:
        yield Finding(Code.OVERRIDE, path, refused[0], refused[1])
    elif name in _TRIALS and value is not False:
        reason, remedy = TRIALS[_TRIALS[name]]
        yield warning(Code.TRIAL_OPTION, path, reason, remedy)
    elif name == "checkpoint.dist_ckpt_strictness" and value in PARTIAL:
        reason, remedy = PARTIAL[str(value)]
        yield warning(Code.TRIAL_OPTION, path, reason, remedy)
    elif (name, value) == ("model.moe_token_dispatcher_type", "flex") and job.nodes > 1:
        reason, remedy = FLEX_BETWEEN_NODES
        yield warning(Code.OVERRIDE, path, reason, remedy)


def _refused(job: MegatronBridgeJob, name: str, value: Value) -> Conflict | None:
    if name in _ON and value is True:
        return ALWAYS[_ON[name]]
    if name in _OFF and value is False:
        return ALWAYS[_OFF[name]]
    if name in _SET:
        return ALWAYS[_SET[name]]
    if name == "dist.distributed_backend" and value != "nccl":
        return ALWAYS["distributed_backend"]
    if name in {"model.fp8", "mixed_precision.fp8"} and job.training.precision != "fp8":
        return ALWAYS["fp16"]._replace(reason="training.precision says bf16, and was checked")
    return None
