"""Rules over Megatron-LM's options that must fit each other: stages, heads, sequences, experts."""

from collections.abc import Callable, Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.megatron_layouts import ELSEWHERE, Options, known_options, world_of
from megatron_eks.rules.values import number
from megatron_eks.rules.workloads import GPU, Container, Manifest

_TP, _PP = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"
_CP, _EP = "--context-parallel-size", "--expert-model-parallel-size"
_ETP = "--expert-tensor-parallel-size"
_LAYERS, _VIRTUAL = "--num-layers", "--num-layers-per-virtual-pipeline-stage"
_CHUNKS, _SEQUENCE = "--num-virtual-stages-per-pipeline-rank", "--seq-length"
_GLOBAL, _MICRO = "--global-batch-size", "--micro-batch-size"
# With these a stage has other layers than the quotient.
_UNEVEN = frozenset(
    {
        *("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"),
        *("--pipeline-model-parallel-layout", "--hybrid-override-pattern"),
        *("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"),
        *("--hybrid-layer-pattern", "--mtp-num-layers", "--encoder-num-layers"),
    }
)
_STOPS = "Megatron stops"
# An option, those of which it needs one beside it, and what it does without.
_NEEDS = (
    ("--overlap-param-gather", ("--use-distributed-optimizer", "--use-megatron-fsdp")),
    ("--overlap-param-gather", ("--overlap-grad-reduce",)),
    ("--tp-comm-overlap", ("--sequence-parallel",)),
    ("--lr-decay-samples", ("--train-samples", "--train-iters")),
    ("--lr-warmup-samples", ("--train-samples", "--train-iters")),
    (_EP, ("--num-experts",)),
    ("--num-query-groups", ("--group-query-attention",)),
    ("--optimizer-cpu-offload", ("--use-precision-aware-optimizer",)),
    ("--use-precision-aware-optimizer", ("--use-distributed-optimizer", "--use-megatron-fsdp")),
    (
        "--fp8-param-gather",
        ("--use-distributed-optimizer", "--use-torch-fsdp2", "--use-megatron-fsdp"),
    ),
    ("--fp4-param-gather", ("--fp4-format",)),
    ("--reuse-grad-buf-for-mxfp8-param-ag", ("--fp8-param-gather",)),
    ("--moe-pad-expert-input-to-capacity", ("--moe-expert-capacity-factor",)),
    ("--moe-router-group-topk", ("--moe-router-num-groups",)),
    ("--hybrid-context-parallel", ("--calculate-per-token-loss",)),
    ("--replication", ("--replication-jump",)),
)
# What Megatron asserts of every model that is given on the command line.
_OF_A_MODEL = frozenset({_LAYERS, "--hidden-size"})
_REQUIRED = ("--num-attention-heads", "--max-position-embeddings", _SEQUENCE, _MICRO)
# megatron/training/training.py, get_optimizer_param_scheduler: "either train-iters or train-samples
# should be provided"; nothing is trained, or the options come from elsewhere.
_LENGTHS = frozenset({"--perform-rl-step", "--skip-train", "--train-iters", "--train-samples"})
_NOT_BOTH = (
    ("--train-iters", "--train-samples"),
    ("--data-path", "--data-args-path"),
    ("--lr-warmup-fraction", "--lr-warmup-iters"),
    ("--lr-warmup-fraction", "--lr-warmup-samples"),
    ("--use-torch-fsdp2", "--use-distributed-optimizer"),
    (_VIRTUAL, _CHUNKS),
    (_VIRTUAL, "--pipeline-model-parallel-layout"),
    ("--fp8-format", "--fp4-format"),
    ("--ddp-num-buckets", "--ddp-bucket-size"),
    ("--global-batch-size", "--step-batch-size-schedule"),
    ("--num-layers", "--encoder-num-layers"),
    *((each, "--mock-data") for each in ("--data-path", "--train-data-path")),
)

# The length of a run, the unit that its options must not have, and the one that they have.
_UNITS = {"--train-iters": ("samples", "iters"), "--train-samples": ("iters", "samples")}

Said = Iterator[tuple[str, str, str]]
"""The option, what was found, and what to do."""


def relations(manifest: Manifest) -> Iterator[Finding]:
    """Require sizes of Megatron-LM's parallelism that divide what they are to share.

    Megatron-LM, megatron/training/arguments.py, validate_args,
    megatron/core/transformer/transformer_config.py and megatron/core/pipeline_parallel/schedules.py
    (core_v0.19): each of them ends the program on every rank.
    """
    for container, options in _programs(manifest):
        if not options.keys().isdisjoint(ELSEWHERE):
            continue
        for check in _CHECKS:
            for flag, found, remedy in check(options):
                yield Finding(Code.TRAINING_FLAG, options[flag][0], found, remedy)
        world = world_of(manifest, container)
        for flag, found, remedy in _over_ranks(options, world) if world else ():
            yield Finding(Code.TRAINING_FLAG, options[flag][0], found, remedy)
        tensor, gpus = _size(options, _TP), container.amount(GPU)
        if gpus and tensor and tensor <= gpus and gpus % tensor:
            found = f"{_TP} {tensor} and {int(gpus)} GPUs in a node: some groups span two nodes"
            path, remedy = options[_TP][0], f"use a divisor of {int(gpus)}"
            yield Finding(Code.TRAINING_FLAG, path, found, remedy, Level.WARNING)


def together(manifest: Manifest) -> Iterator[Finding]:
    """Refuse options of Megatron-LM that exclude each other, or lack one that they need.

    Megatron-LM, megatron/training/arguments.py, validate_args, and `__post_init__` of
    TransformerConfig, OptimizerConfig and DistributedDataParallelConfig (core_v0.19).
    """
    for _, options in _programs(manifest):
        if not options.keys().isdisjoint({"--config-file", "--yaml-cfg", "--use-checkpoint-args"}):
            continue
        for flag, others in _NEEDS:
            idle = flag == _EP and _size(options, flag) in {None, 1}
            if flag in options and not idle and options.keys().isdisjoint(others):
                found = f"{flag} without {' or '.join(others)}"
                ignored = flag == "--num-query-groups"
                found += ": nothing reads it" if ignored else f": {_STOPS}"
                level = Level.WARNING if ignored else Level.ERROR
                path, remedy = options[flag][0], f"add {others[0]}, or remove it"
                yield Finding(Code.TRAINING_FLAG, path, found, remedy, level)
        given = options.keys() | ({_SEQUENCE} if "--encoder-seq-length" in options else set())
        # With underscores it is found as what nobody reads.
        written = {each.replace("_", "-") for each in given}
        lacking = [each for each in _REQUIRED if each not in written]
        if lacking and options.keys() >= _OF_A_MODEL:
            found = f"no {' and no '.join(lacking)}: {_STOPS} at once"
            path, remedy = options[_LAYERS][0], f"add {', '.join(lacking)}"
            yield Finding(Code.TRAINING_FLAG, path, found, remedy)
        trained = options.keys() >= _OF_A_MODEL | {"--data-path", "--lr"}
        if trained and options.keys().isdisjoint(_LENGTHS):
            found = f"no --train-iters and no --train-samples: {_STOPS}"
            path, remedy = options[_LAYERS][0], "add --train-iters"
            yield Finding(Code.TRAINING_FLAG, path, found, remedy)
        for flag, found, remedy in _in_one_unit(options):
            yield Finding(Code.TRAINING_FLAG, options[flag][0], found, remedy)
        for flag, other in _NOT_BOTH:
            if flag in options and other in options and _differ(options, flag, other):
                found = f"{flag} beside {other}: {_STOPS}"
                yield Finding(Code.TRAINING_FLAG, options[flag][0], found, "keep one of the two")


def _in_one_unit(options: Options) -> Said:
    """Find options that count samples beside a length in iterations, or the other way."""
    lengths = [each for each in _UNITS if each in options]
    for length in lengths if len(lengths) == 1 else ():
        wrong, right = _UNITS[length]
        for part in ("decay", "warmup"):
            flag, instead = f"--lr-{part}-{wrong}", f"--lr-{part}-{right}"
            if flag in options and options[flag][1] != "0":
                remedy = "remove it" if instead in options else f"write {instead} in its place"
                yield flag, f"{flag} beside {length}: {_STOPS}", remedy


def _differ(options: Options, flag: str, other: str) -> bool:
    """Tell whether two options contradict each other; one pair agrees in one value."""
    return not flag.startswith("--lr-warmup-fraction") or options[other][1] != "0"


def _programs(manifest: Manifest) -> Iterator[tuple[Container, Options]]:
    for pod in manifest.pods:
        for container in pod.containers:
            options = None if container.is_init else known_options(container)
            if options:
                yield container, options


def _stages(options: Options) -> Said:
    layers, stages = _size(options, _LAYERS), _size(options, _PP, 1)
    if not layers or not stages or not options.keys().isdisjoint(_UNEVEN):
        return
    if layers % stages:
        found = f"{layers} layers, which {_PP} {stages} does not divide: {_STOPS}"
        yield _PP, found, "use a divisor of the layers"
        return
    per_stage = layers // stages
    virtual, chunks = _size(options, _VIRTUAL), _size(options, _CHUNKS)
    flag = _VIRTUAL if virtual else _CHUNKS
    part = virtual or (per_stage // chunks if chunks and per_stage % chunks == 0 else None)
    if (virtual and per_stage % virtual) or (chunks and per_stage % chunks):
        found = (
            f"{flag} {virtual or chunks}, which does not divide the {per_stage} layers of a stage"
        )
        yield flag, f"{found}: {_STOPS}", "use a divisor of them"
    elif part and part != per_stage:
        yield from _interleaved(options, flag, stages)


def _interleaved(options: Options, flag: str, stages: int) -> Said:
    if stages == 1:
        found = f"{flag} with one pipeline stage: {_STOPS}, for an interleaved schedule needs two"
        yield flag, found, f"remove it, or set {_PP} to 2 or more"
    elif stages == 2 and "--no-overlap-p2p-communication" in options:  # noqa: PLR2004 -- validate_args
        found = f"{flag} with two pipeline stages and no overlap: {_STOPS}"
        yield flag, found, "remove --no-overlap-p2p-communication, or use more stages"


def _heads(options: Options) -> Said:
    tensor, groups = _size(options, _TP, 1), _size(options, "--num-query-groups")
    shared = "--group-query-attention" in options
    if tensor and groups and shared and groups % tensor and tensor % groups:
        found = f"{groups} query groups, neither a multiple nor a divisor of {_TP} {tensor}"
        yield "--num-query-groups", f"{found}: {_STOPS}", f"use a multiple of {tensor}"
    ffn = _size(options, "--ffn-hidden-size")
    if tensor and ffn and ffn % tensor:
        found = f"--ffn-hidden-size {ffn}, which {_TP} {tensor} does not divide: {_STOPS}"
        yield "--ffn-hidden-size", found, f"use a multiple of {tensor}"


def _sequences(options: Options) -> Said:
    length, context = _size(options, _SEQUENCE), _size(options, _CP, 1)
    tensor = _size(options, _TP, 1)
    if length and context and context > 1 and length % (2 * context):
        found = f"{_SEQUENCE} {length} is no multiple of twice {_CP} {context}: {_STOPS}"
        yield _SEQUENCE, found, f"use a multiple of {2 * context}"
    elif length and context and tensor and "--sequence-parallel" in options:
        parts = tensor * context if tensor > 1 else 1
        if length % parts:
            found = f"{_SEQUENCE} {length}, which sequence parallelism splits in {parts}"
            yield _SEQUENCE, f"{found}: {_STOPS}", f"use a multiple of {parts}"


def _experts(options: Options) -> Said:
    tensor, experts = _size(options, _TP, 1), _size(options, "--num-experts")
    if experts and tensor and tensor > 1 and "--sequence-parallel" not in options:
        found = f"experts and {_TP} {tensor} without --sequence-parallel: {_STOPS} in training"
        yield "--num-experts", found, "add --sequence-parallel"


def _recomputing(options: Options) -> Said:
    flag, method, count = "--recompute-granularity", "--recompute-method", "--recompute-num-layers"
    kind = options[flag][1] if flag in options else None
    lacks = [each for each in (method, count) if each not in options]
    if kind == "full" and lacks:
        found = f"{flag} full without {lacks[0]}: {_STOPS}"
        yield flag, found, f"add {method} uniform and {count} 1"
    for each in (method, count):
        if kind == "selective" and each in options:
            yield each, f"{each} beside {flag} selective: {_STOPS}", "remove it, or use full"


def _saving(options: Options) -> Said:
    kind = options.get("--ckpt-format", ((), "torch_dist"))[1]
    if "--async-save" in options and kind in {"torch", "torch_dcp", "zarr", "fsdp_dtensor"}:
        found = f"--async-save with --ckpt-format {kind}: {_STOPS} at the first checkpoint"
        yield "--async-save", found, "use --ckpt-format torch_dist, or remove --async-save"


def _over_ranks(options: Options, world: int) -> Said:
    sizes = [_size(options, each, 1) for each in (_TP, _PP, _CP)]
    expert, tensor = _size(options, _EP, 1), _size(options, _ETP)
    if None in sizes or expert is None:
        return
    width, stages, context = (each or 1 for each in sizes)
    inner = expert * (tensor or width) * stages
    if _EP in options and expert > 1 and world % inner:
        product = f"expert {expert} x expert tensor {tensor or width} x pipeline {stages} = {inner}"
        found = f"{product}, which does not divide the {world} ranks: {_STOPS}"
        yield _EP, found, f"let the product divide {world}"
    batch, micro = (_size(options, each) for each in (_GLOBAL, _MICRO))
    copies = world // (width * stages * context) if width * stages * context <= world else 0
    interleaved = _is_interleaved(options, stages)
    if not batch or not micro or not copies or not interleaved or batch % (micro * copies):
        return
    count = batch // (micro * copies)
    if count % stages and "--microbatch-group-size-per-virtual-pipeline-stage" not in options:
        flag = _VIRTUAL if _VIRTUAL in options else _CHUNKS
        found = f"{flag}, and {count} microbatches are no multiple of {stages} stages: {_STOPS}"
        yield flag, found, f"use a --global-batch-size of {stages * micro * copies} or a multiple"


def _is_interleaved(options: Options, stages: int) -> bool:
    layers, virtual = _size(options, _LAYERS), _size(options, _VIRTUAL)
    if stages < 2 or not options.keys().isdisjoint(_UNEVEN):  # noqa: PLR2004 -- one stage is no pipeline
        return False
    if virtual and layers and layers % stages == 0:
        return virtual < layers // stages
    return (_size(options, _CHUNKS) or 1) > 1


def _size(options: Options, flag: str, default: int | None = None) -> int | None:
    """Return a positive number, the default of an option that is not there, or None."""
    if flag not in options:
        return default
    value = number(options[flag][1])
    return value if value is not None and value > 0 else None


_CHECKS: tuple[Callable[[Options], Said], ...] = (
    *(_stages, _heads, _sequences, _experts),
    *(_recomputing, _saving),
)
