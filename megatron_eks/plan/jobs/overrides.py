"""Megatron-Bridge's recipes and overrides: whether they agree with the job file and each other.

Names and values: Megatron core 0.19, `TransformerConfig`, and Megatron-Bridge 0.6,
megatron/bridge/training/config.py and checkpointing.py, megatron/bridge/models/gpt_provider.py.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeAlias

from megatron_eks.catalog import megatron_conflicts as conflicts
from megatron_eks.catalog.bridge_fields import FIELDS, NOT_OF_LLAMA, VERSION, Field
from megatron_eks.catalog.job_keys import OPEN, PLANNED
from megatron_eks.catalog.megatron_options import WORDS
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, choices, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.arguments import bridge_options
from megatron_eks.plan.jobs.extra_args import CHECKS, Asked, Problem
from megatron_eks.plan.jobs.models import check_model, model_shape, preset_name
from megatron_eks.plan.jobs.sources import unwritable

Value: TypeAlias = bool | float | str
"""What a job file may write."""

# Judged by what the job file says alone, whatever else a recipe has: here, or by Megatron.
_NUMBERS = frozenset(
    {*("cp_comm_type", "microbatch_group_size_per_vp_stage"), "num_distributed_optimizer_instances"}
)

# Longer lists than this help nobody; then the field's own words find its neighbours.
_ALL, _SOME = 30, 5
_KINDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a word"}
# Words that Megatron asks for by name, where the field takes any (get_megatron_optimizer).
_MORE_CHOICES = {"optimizer.optimizer": WORDS["--optimizer"]}

# What harms a run is a setting of `catalog/megatron_conflicts.txt` by Bridge's name.
_EMPTY = frozenset(conflicts.TABLE["empty_blocks"].split())

# Memory, time and checkpoints are planned for the job's model, and the program compares four of its
# sizes with the recipe's before it trains.
_SIZES = frozenset(conflicts.TABLE["sizes_of_bridge"].split())
# Keys of the job file with another name.
_KEYS = {
    "num_moe_experts": "num_experts",
    "gated_linear_unit": "swiglu",
    "layernorm_epsilon": "norm_epsilon",
}
# What weights are trained with, though they have the same shapes without it.
_LEARNT_WITH = ("rotary_base", "layernorm_epsilon", "normalization", "position_embedding_type")
_KIND = "checkpoint.non_persistent_ckpt_type"
_TORCH, _NSYS = "profiling.use_pytorch_profiler", "profiling.use_nsys_profiler"
_SNAPSHOT = "profiling.memory_snapshot_path"


def level_in(image: str) -> Level:
    """Return how sure a finding is: an image of one's own may have another Megatron-Bridge."""
    return Level.ERROR if image == "megatron" else Level.WARNING


def check_overrides(job: MegatronBridgeJob, copies: int | None, cluster: ClusterConfig) -> Findings:
    """Yield overrides that nobody takes, or that end a run or make another one of it.

    So many copies of the model learn together, if that is known.
    """
    for name, value in job.overrides.items():
        wrong = (
            list(check_override(job.image, name, value))
            or list(_effect(job, name, value))
            or list(_of_model(job, name, value))
        )
        yield from wrong
        if not wrong and (problem := _against_key(job, name, value)):
            yield _finding(name, problem)
        if problem := _beside(job, name, cluster):
            yield _finding(name, problem)
        if name in conflicts.WRITTEN_BY_BRIDGE and isinstance(value, str) and value:
            shared = name == "checkpoint.non_persistent_global_ckpt_dir"
            if problem := unwritable(value, cluster, shared=shared):
                yield Finding(Code.SHARED_PATH, ("overrides", name), *problem)
    if has_errors(check_model(job.model)):
        return
    given = list(bridge_options(job))
    values = {setting: words for _, setting, words in given}
    asked = Asked(job, model_shape(job.model), values, copies)
    for name, setting, _ in given:
        if setting in _NUMBERS and (problem := CHECKS[setting](asked)):
            yield _finding(name, problem)


def _finding(name: str, problem: Problem, level: Level = Level.ERROR) -> Finding:
    return Finding(Code.OVERRIDE, ("overrides", name), *problem, level)


def check_override(image: str, name: str, value: Value) -> Findings:
    """Yield an override that the job file says, or that Megatron-Bridge does not take."""
    if name in PLANNED:
        found = f"{name} follows from the job file"
        yield _finding(name, (found, f"remove it, and set {PLANNED[name]}"))
    elif "." not in name.strip("."):
        places = _blocks_with(name.strip(".")) or "BLOCK.NAME, such as ddp.NAME"
        yield _finding(name, (f"{name!r} names no value of a configuration", f"write {places}"))
    elif problem := _not_taken(name, value):
        yield _finding(name, problem, level_in(image))


def _blocks_with(field: str, but: str = "") -> str:
    blocks = (block for block, fields in FIELDS.items() if field in fields and block != but)
    return " or ".join(f"{block}.{field}" for block in blocks)


def _not_taken(name: str, value: Value) -> Problem | None:
    block, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    if (plain := name.lstrip("+~")) != name:
        return "+ and ~ are signs of Hydra", f"write {plain}"
    if block == "env_vars":
        return f"{block} is the job file's", "set runtime.env"
    fields = FIELDS.get(block)
    if fields is None:
        return f"Megatron-Bridge {VERSION} has no block {block}", choices(block, FIELDS)
    field = fields.get(first)
    if field is None:
        return f"{block} of Megatron-Bridge {VERSION} has no {first}", _near(block, first, fields)
    # A value inside a value has a class of the recipe's choice.
    return _value(name, value, field) if first == rest else None


def _value(name: str, value: Value, field: Field) -> Problem | None:
    if not field.kinds:
        return f"{name} takes what a job file cannot write", "leave it to the recipe"
    kind = type(value).__name__
    # A whole number is a number too.
    if field.kinds.isdisjoint({"int", "float"} if kind == "int" else {kind}):
        kinds = field.kinds - {"int"} if "float" in field.kinds else field.kinds
        wanted = " or ".join(words for kind, words in _KINDS.items() if kind in kinds)
        return f"{value!r}, and {name} takes {wanted}", f"write {wanted}"
    known = field.choices or _MORE_CHOICES.get(name, ())
    if isinstance(value, str) and known and value not in known:
        return f"{name} takes no {value!r}", choices(value, known)
    return None


def _near(block: str, name: str, fields: Mapping[str, object]) -> str:
    if len(fields) <= _ALL:
        return choices(name, fields)
    words = set(name.split("_"))
    near = get_close_matches(name, fields, _SOME)
    near += sorted(each for each in fields if words & set(each.split("_")) and each not in near)
    if not near:
        return f"name one of its {len(fields)} values: megatron.bridge, ConfigContainer.{block}"
    rest = f" near are {', '.join(near[1:_SOME])}" if near[1:] else ""
    return f"did you mean {near[0]!r}?{rest}"


def _effect(job: MegatronBridgeJob, name: str, value: Value) -> Findings:
    path = ("overrides", name)
    setting = conflicts.OF_BRIDGE.get(name) or conflicts.OF_BRIDGE.get(f"{name}={_written(value)}")
    refused = _refused(job, name, value) or conflicts.ALWAYS.get(setting or "")
    block = name.partition(".")[0]
    if block in _EMPTY:
        found = f"no recipe of pretraining has {block}, and the program stops at it"
        # An image of one's own may have recipes of its own.
        yield _finding(name, (found, "remove it"), level_in(job.image))
    elif refused is not None:
        yield _finding(name, refused)
    elif setting in conflicts.TRIALS and value is not False:
        yield warning(Code.TRIAL_OPTION, path, *conflicts.TRIALS[setting])
    elif name == "checkpoint.dist_ckpt_strictness" and value in conflicts.PARTIAL:
        yield warning(Code.TRIAL_OPTION, path, *conflicts.RANDOM)
    elif (name, value) == ("model.moe_token_dispatcher_type", "flex") and job.nodes > 1:
        yield warning(Code.OVERRIDE, path, *conflicts.FLEX_BETWEEN_NODES)


def _refused(job: MegatronBridgeJob, name: str, value: Value) -> conflicts.Conflict | None:
    if name == "dist.distributed_backend" and value != "nccl":
        return conflicts.ALWAYS["distributed_backend"]
    if name in {"model.fp8", "mixed_precision.fp8"} and job.training.precision == "bf16":
        return conflicts.ALWAYS["fp16"]._replace(
            reason="training.precision says bf16, and was checked"
        )
    if (name, value) == ("model.cross_entropy_fusion_impl", "te"):
        return conflicts.Conflict("Megatron refuses it as unstable", "use native")
    return None


def _of_model(job: MegatronBridgeJob, name: str, value: Value) -> Findings:
    block, _, field = name.partition(".")
    if block != "model" or has_errors(check_model(job.model)):
        return
    preset, shape = preset_name(job.model) or "", model_shape(job.model)
    # LlamaBridge makes a recipe's model by its name: llama32_1b, not llama4.
    is_llama = job.recipe.startswith(("llama2_", "llama3_", "llama31_", "llama32_"))
    if field in NOT_OF_LLAMA and preset.startswith("llama-") and is_llama:
        found = f"the model of {job.recipe} has no {field}: another model's has it"
        yield _finding(name, (found, _instead(field)), level_in(job.image))
        return
    if field in _SIZES and (planned := _planned(shape, field)) != value:
        if field == "vocab_size" and isinstance(value, int) and value > shape.vocab_size:
            return  # rows that no token asks for, as padding has them
        found = f"{_written(value)} would win over the job's model, which has {_written(planned)}"
        key = _KEYS.get(field, field)
        if field == "share_embeddings_and_output_weights":
            key = "untie_embeddings_and_output_weights"
        yield _finding(name, (found, f"remove it, or set model.{key} as well"))
    base = PRESETS.get(preset)
    if field in _LEARNT_WITH and base is not None and job.checkpoint.pretrained is not None:
        theirs = getattr(base, _KEYS.get(field, field))
        # A larger base is how models learn longer sequences.
        larger = field == "rotary_base" and isinstance(value, int | float) and value > theirs
        if value != theirs and not larger:
            found = f"{_written(value)}, and weights of {preset} were trained with {theirs}"
            yield warning(Code.MODEL_VALUE, ("overrides", name), found, "remove it")


def _instead(field: str) -> str:
    if places := _blocks_with(field, but="model"):
        return f"write {places}"
    is_length = field == "max_position_embeddings"
    return f"remove it{': training.sequence_length says how long texts are' * is_length}"


def _planned(shape: ModelShape, field: str) -> object:
    if field == "share_embeddings_and_output_weights":
        return not shape.untie_embeddings_and_output_weights
    # Megatron takes the width of all layers for that of an expert.
    if field == "moe_ffn_hidden_size" and shape.num_experts:
        return shape.expert_width
    return getattr(shape, _KEYS.get(field, field))


def _written(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _against_key(job: MegatronBridgeJob, name: str, value: Value) -> Problem | None:
    block, _, key = OPEN.get(name, "").partition(".")
    part = getattr(job, block, None)
    if part is None or key not in part.model_fields_set or getattr(part, key) == value:
        return None
    found = f"{value} would win over {OPEN[name]}, which says something else"
    return found, f"remove it, and set {OPEN[name]}"


def _beside(job: MegatronBridgeJob, name: str, cluster: ClusterConfig) -> Problem | None:
    others = job.overrides
    if name == "checkpoint.non_persistent_save_interval" and not others.get(_KIND):
        found = "the first of these checkpoints has no kind, and ends the run"
        return found, f"add {_KIND}: global"
    if name == "scheduler.lr_warmup_fraction" and job.training.warmup_iters:
        found = f"training.warmup_iters is {job.training.warmup_iters}, and Bridge takes one"
        return found, "remove one of the two"
    if name == _TORCH and others[name] is True and others.get(_NSYS) is True:
        return f"one profiler runs, and {_NSYS} asks for another", "keep one of the two"
    if name == "profiling.record_memory_history" and others[name] and not others.get(_SNAPSHOT):
        found = "the snapshot goes to /nemo_run by default, which no pod may write to"
        return found, f"add {_SNAPSHOT}: {cluster.storage.lustre.mount_path}/NAME.pickle"
    return None
