"""Rules over settings in ConfigMaps, DeepSpeed's above all: that they are JSON, and agree."""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs.megatron_layouts import world_of
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, references
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_ALL, _EACH = "train_batch_size", "train_micro_batch_size_per_gpu"
_OF_DEEPSPEED = re.compile(r"\"(zero_optimization|train_\w*batch_size\w*|bf16|fp16)\"")
_CLOSE = 0.85
# DeepSpeed, "DeepSpeed Configuration JSON", and deepspeed/runtime/constants.py.
_NAMES = (
    *("activation_checkpointing", "amp", "aio", "autotuning", "bf16", "bfloat16", "checkpoint"),
    *("comms_logger", "communication_data_type", "compression_training", "csv_monitor"),
    *("curriculum_learning", "data_efficiency", "data_types", "dataloader_drop_last"),
    *("disable_allgather", "dump_state", "elasticity", "eigenvalue", "flops_profiler", "fp16"),
    *("fp32_allreduce", "gradient_accumulation_steps", "gradient_clipping", "hybrid_engine"),
    *("gradient_predivide_factor", "memory_breakdown", "optimizer", "pipeline", "nebula"),
    *("prescale_gradients", "progressive_layer_drop", "scheduler", "seq_parallel_communication"),
    *("sequence_parallel_size", "sparse_attention", "sparse_gradients", "steps_per_print"),
    *("tensor_parallel", "tensorboard", "torch_autocast", "train_batch_size", "wandb", "compile"),
    *("train_micro_batch_size_per_gpu", "use_data_before_expert_parallelism", "zero_optimization"),
    *("wall_clock_breakdown", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
    *("graph_harvesting", "load_universal_checkpoint", "timers", "weight_quantization"),
)
_STEPS = "gradient_accumulation_steps"
# With these fewer ranks than all share the batch.
_DIVIDED = ("mpu", "pipeline", "sequence_parallel_size", "tensor_parallel", "elasticity")


def readable(manifest: Manifest) -> Iterator[Finding]:
    """Refuse settings that are no JSON, and two formats of numbers at once.

    DeepSpeed, "DeepSpeed Configuration JSON", offload_param: "Available only with ZeRO stage 3".

    Python, "json", JSONDecodeError; deepspeed/runtime/config.py, _do_error_check: "bfloat16 and
    fp16 modes cannot be simultaneously enabled".
    """
    for key, value in (
        (mapping(manifest.body.get("data")) or {}).items() if manifest.kind == "ConfigMap" else ()
    ):
        written = text(value) if key.endswith(".json") else None
        if written is None or is_placeholder(written) or not written.lstrip().startswith("{"):
            continue
        path = ("data", key)
        try:
            settings = mapping(json.loads(written)) or {}
        except json.JSONDecodeError as wrong:
            if not wrong.msg.startswith("Extra data"):  # several objects, one a line
                found = f"no JSON, by its line {wrong.lineno}: {wrong.msg.lower()}"
                level = Level.ERROR if _OF_DEEPSPEED.search(written) else Level.WARNING
                remedy = "correct it: who reads it ends; JSON has no comments, and no last comma"
                yield manifest.find(Code.TRAINING_FLAG, path, found, remedy, level)
            continue
        zero = mapping(settings.get("zero_optimization")) or {}
        stage = zero.get("stage")
        if not is_absent(stage) and str(stage) not in {*"0123", "auto"}:
            found = f"zero_optimization.stage {shown(stage)}: DeepSpeed has 0, 1, 2 and 3"
            yield manifest.find(Code.TRAINING_FLAG, path, found, "write one of these, as a number")
        device = (mapping(zero.get("offload_param")) or {}).get("device")
        if str(stage) in {*"012"} and device in {"cpu", "nvme"}:
            found = f"offload_param with stage {stage}: DeepSpeed moves parameters in stage 3 alone"
            remedy = "write stage: 3, or remove offload_param"
            yield manifest.find(Code.TRAINING_FLAG, path, found, remedy, Level.WARNING)
        for name in settings if zero or _ALL in settings else ():
            close = get_close_matches(name, _NAMES, 1, _CLOSE)
            if name not in _NAMES and close and close[0] not in settings:
                found, remedy = f"DeepSpeed reads no {shown(name)}", f"did you mean {close[0]}?"
                yield manifest.find(Code.TRAINING_FLAG, path, found, remedy, Level.WARNING)
        on = [
            each
            for each in ("fp16", "bf16")
            if (mapping(settings.get(each)) or {}).get("enabled") is True
        ]
        if len(on) > 1:
            found = "fp16 and bf16 are both enabled: DeepSpeed stops"
            yield manifest.find(Code.TRAINING_FLAG, path, found, "disable fp16, or bf16")


def batches(together: ManifestSet) -> Iterator[Found]:
    """Require of the whole batch that it is micro batch times steps times ranks.

    DeepSpeed, "DeepSpeed Configuration JSON", batch size, and deepspeed/runtime/config.py,
    _batch_assertion: any other ends the program (deepspeedai/DeepSpeed, issue 6914).
    """
    for each in together.of("ConfigMap"):
        for key, value in (mapping(each.body.get("data")) or {}).items():
            written = text(value) if key.endswith(".json") else None
            settings = _read(written) if written and _ALL in written else None
            if settings is None or any(name in settings for name in _DIVIDED):
                continue
            whole, micro, steps = (settings.get(name) for name in (_ALL, _EACH, _STEPS))
            if not (_is_count(whole) and _is_count(micro) and isinstance(whole, int)):
                continue
            product = int(str(micro)) * (int(str(steps)) if _is_count(steps) else 1)
            world = _world(each, together)
            path = ("data", key)
            if world and _is_count(steps) and whole != product * world:
                found = f"{_ALL} {whole}, and {_EACH} {micro} x {_STEPS} {steps} x {world} ranks "
                found += f"are {product * world}: DeepSpeed stops"
                remedy = f"write {_ALL}: {product * world}"
                yield each, each.find(Code.TRAINING_FLAG, path, found, remedy)
            elif whole % product:
                found = f"{_ALL} {whole} is no multiple of {_EACH} {micro} x {_STEPS} {steps or 1}"
                remedy = f"use a multiple of {product}, times the ranks"
                yield each, each.find(Code.TRAINING_FLAG, path, found, remedy, Level.WARNING)


def _read(written: str) -> "dict[str, Json] | None":
    try:
        return mapping(json.loads(written))
    except ValueError:
        return None


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _world(config: Manifest, together: ManifestSet) -> int | None:
    """Return how many ranks the jobs start that take this ConfigMap, if all start as many."""
    worlds: set[int | None] = set()
    for manifest in together.objects:
        named = [each for each in references(manifest) if each.kind == "ConfigMap"]
        if any(together.named(manifest, each.kind, each.name) is config for each in named):
            for pod in manifest.pods:
                worlds |= {world_of(manifest, one) for one in pod.containers if one.has_launcher}
    return worlds.pop() if len(worlds) == 1 else None
