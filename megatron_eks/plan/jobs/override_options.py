"""Overrides of a Megatron-Bridge job that Megatron core refuses beside its layout and its numbers.

They are Megatron-LM's options by Bridge's names, and the checks are those of the options. What a
recipe may set itself (a score function, another optimizer) is not missing where an override needs
it: only what follows from the job file is compared. Sources: Megatron core 0.19, as in
`relation_checks.py`, and Megatron-Bridge 0.6, megatron/bridge/training/config.py (validate).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from megatron_eks.catalog.bridge_fields import FIELDS
from megatron_eks.catalog.megatron_conflicts import NEEDS_EXPERTS
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.layout import model_shape
from megatron_eks.plan.jobs.model_checks import check_model
from megatron_eks.plan.jobs.option_checks import Option, by_plan
from megatron_eks.plan.jobs.option_values import Asked
from megatron_eks.plan.jobs.relation_checks import OF_NUMBERS
from megatron_eks.plan.jobs.stage_checks import check_stages

_BLOCKS = ("model", "ddp", "optimizer", "scheduler", "validation")
# By another name than Megatron-LM's setting.
_RENAMED = {
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
_BACK = {setting: name for name, setting in _RENAMED.items()}
# Judged by what the job file says alone, whatever else a recipe has.
_NUMBERS = frozenset(
    {
        *("cp_comm_type", "eval_global_batch_size", "eval_micro_batch_size", "lr_warmup_init"),
        *("microbatch_group_size_per_vp_stage", "no_rope_freq"),
        "num_distributed_optimizer_instances",
    }
)
_LAYOUT = frozenset(
    {
        *("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"),
        *("defer_embedding_wgrad_compute", "distribute_saved_activations"),
        *("fused_residual_rmsnorm", "use_precision_aware_optimizer"),
    }
)
_OPTION = re.compile(r"--[a-z0-9][a-z0-9_-]*")


def check_options(job: MegatronBridgeJob, copies: int | None) -> Iterator[Finding]:
    """Yield overrides that do not go with the job file; `copies` of the model learn."""
    if has_errors(check_model(job.model)):
        return
    model, given = model_shape(job.model), dict(_given(job))
    names = list(job.overrides)
    for place, (name, setting, _) in given.items():
        if setting.startswith(NEEDS_EXPERTS) and model.num_experts is None:
            found, remedy = "the model has no experts", "remove it, or name a model with experts"
            yield warning(Code.NO_MEANING, ("overrides", name), found, remedy)
            continue
        asked = Asked(job, model, _values(given), copies)
        problem = by_plan(job, model, setting) if setting in _LAYOUT else None
        if problem is None and setting in _NUMBERS:
            problem = OF_NUMBERS[setting](asked)
        if problem is not None:
            found, remedy = (_translated(each) for each in problem)
            yield Finding(Code.OVERRIDE, ("overrides", names[place]), found, remedy)
    for finding in check_stages(job, model, given):
        name = names[int(finding.path[-1])]
        found = _translated(finding.found.partition(": ")[2])
        yield replace(
            finding,
            code=Code.OVERRIDE,
            path=("overrides", name),
            found=found,
            remedy=_translated(finding.remedy),
        )


def _given(job: MegatronBridgeJob) -> Iterator[tuple[int, Option]]:
    """Yield overrides as options, by their places: a switch that is off is not given."""
    for place, (name, value) in enumerate(job.overrides.items()):
        block, _, field = name.partition(".")
        if block in _BLOCKS and value is not False:
            words = () if value is True else (str(value),)
            yield place, (name, _RENAMED.get(field, field), words)


def _values(given: Mapping[int, Option]) -> dict[str, tuple[str, ...]]:
    return {setting: tuple(words) for _, setting, words in given.values()}


def _translated(text: str) -> str:
    """Name Bridge's values in place of Megatron-LM's options."""
    return _OPTION.sub(lambda found: _dotted(found[0]), text)


def _dotted(option: str) -> str:
    setting = OPTIONS.get(option, "")
    field = _BACK.get(setting, setting)
    block = next((each for each in _BLOCKS if field in FIELDS[each]), None)
    return f"{block}.{field}" if block else option
