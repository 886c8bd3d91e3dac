"""Rules over Megatron-LM's layout on a command line: the ranks that there are, and the batch."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.jobs.training_flags import PROGRAM, megatron_words
from megatron_eks.rules.values import is_absent, mapping, number
from megatron_eks.rules.workloads import GPU, MAIN_CONTAINER, Container, Manifest

_SIZES = {
    "TP": "--tensor-model-parallel-size",
    "PP": "--pipeline-model-parallel-size",
    "CP": "--context-parallel-size",
}
_GLOBAL, _MICRO = "--global-batch-size", "--micro-batch-size"
# These bring options from elsewhere, or change what the numbers mean.
ELSEWHERE = frozenset(
    {
        *("--config-file", "--decrease-batch-size-if-needed", "--hierarchical-context-parallel"),
        *("--rampup-batch-size", "--step-batch-size-schedule", "--use-checkpoint-args"),
        *("--hybrid-context-parallel", "--yaml-cfg"),
    }
)
_MANY = re.compile(r"@|\*|ARG|OPT|FLAG|PARAM|EXTRA|CONF", re.IGNORECASE)

Options = dict[str, tuple[Path, str]]


def layouts(manifest: Manifest) -> Iterator[Finding]:
    """Require a layout that the ranks fill, a batch that they share evenly, and one precision.

    Megatron-LM, megatron/training/arguments.py, validate_args, and
    megatron/core/num_microbatches_calculator.py (core_v0.19): each of them ends the program.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            options = None if container.is_init else known_options(container)
            if not options:
                continue
            if {"--bf16", "--fp16"} <= options.keys():
                found = "--fp16 beside --bf16: Megatron stops at once"
                path = options["--fp16"][0]
                yield Finding(Code.TRAINING_FLAG, path, found, "keep one of the two")
            world = world_of(manifest, container)
            if world is not None and options.keys().isdisjoint(ELSEWHERE):
                yield from layout(options, world)


def layout(options: Options, world: int) -> Iterator[Finding]:
    """Judge sizes and batch of one program by its number of ranks."""
    sizes = {name: number(options[flag][1]) for name, flag in _SIZES.items() if flag in options}
    model = 1
    for size in sizes.values():
        if not size or size < 1:
            return
        model *= size
    if world % model:
        written = " x ".join(f"{name} {size}" for name, size in sizes.items())
        verb = "does not divide" if model <= world else "is more than"
        found = f"{written} {verb} the {world} rank{'' if world == 1 else 's'}"
        path = next(options[flag][0] for flag in _SIZES.values() if flag in options)
        remedy = f"let the product divide {world}, or change the number of ranks"
        yield Finding(Code.TRAINING_FLAG, path, found, remedy)
        return
    if not {_GLOBAL, _MICRO} <= options.keys():
        return
    batch, micro = (number(options[flag][1]) for flag in (_GLOBAL, _MICRO))
    copies = world // model
    if batch and micro and batch > 0 and micro > 0 and batch % (micro * copies):
        found = f"a global batch of {batch} for {copies} replicas of the model with {micro} each"
        remedy = f"use a multiple of {micro * copies}"
        yield Finding(Code.TRAINING_FLAG, options[_GLOBAL][0], found, remedy)


def known_options(container: Container) -> Options | None:
    """Return the options of the one program that a container starts; None if not all are known."""
    words = megatron_words(container)
    if sum(PROGRAM.search(word) is not None for _, word in words) > 1:
        return None
    found: Options = {}
    for index, (path, word) in enumerate(words):
        before = words[index - 1][1] if index else ""
        alone = not before.startswith("--") or "=" in before
        if word.startswith("$") and (alone or _MANY.search(word)):
            return None
        if not word.startswith("--"):
            continue
        flag, _, value = word.partition("=")
        if flag in found:
            return None
        after = words[index + 1][1] if index + 1 < len(words) else ""
        found[flag] = (path, value or after)
    return found


def world_of(manifest: Manifest, container: Container) -> int | None:
    """Return how many ranks a launcher starts in all; None where nobody can know."""
    if not container.has_launcher:
        return None
    given: dict[str, set[str]] = {}
    for _, flag, value in launcher_flags(container):
        given.setdefault(flag, set()).add(value)
    if any(len(values) > 1 for values in given.values()):
        return None
    flags = {flag: next(iter(values)) for flag, values in given.items()}
    processes, nodes = _processes(manifest, container, flags), _nodes(manifest, container, flags)
    return processes * nodes if processes and nodes else None


def _processes(manifest: Manifest, container: Container, flags: dict[str, str]) -> int | None:
    amount = container.amount(GPU)
    gpus = int(amount) if amount else None
    operator = manifest.pytorch_replicas is not None
    written = flags.get("nproc-per-node")
    if written is None and not operator:
        return None
    value = manifest.spec.get("nprocPerNode") if written is None else written
    return gpus if is_absent(value) or value in ("auto", "gpu") else number(value)


def _nodes(manifest: Manifest, container: Container, flags: dict[str, str]) -> int | None:
    written = flags.get("nnodes")
    if written is not None and number(written) is not None:
        return number(written)
    types = manifest.pytorch_replicas
    if types is None:
        return None
    if container.name != MAIN_CONTAINER or not is_absent(manifest.spec.get("elasticPolicy")):
        return None
    counts = [(mapping(each) or {}).get("replicas") for each in types.values()]
    numbers = [1 if is_absent(each) else number(each) for each in counts]
    known = [each for each in numbers if each is not None]
    return sum(known) if len(known) == len(numbers) else None
