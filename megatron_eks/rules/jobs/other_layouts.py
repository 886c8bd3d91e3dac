"""Rules over layouts that torchtitan and NeMo are given, and the ranks that there are."""

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.megatron_layouts import layout, world_of
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import options_of, split_words
from megatron_eks.rules.values import number
from megatron_eks.rules.workloads import Container, Manifest

_DEGREE = re.compile(
    r"--(parallelism|training|experimental)\."
    r"(?P<name>(data_parallel_replicate|data_parallel_shard|context_parallel|tensor_parallel"
    r"|pipeline_parallel)_degree)"
)
_ALL_DEGREES = 5
_OVERRIDE = re.compile(
    r"\+*model\.(?P<name>(tensor|pipeline)_model_parallel_size|context_parallel_size"
    r"|(micro|global)_batch_size)=(?P<value>[0-9]+)"
)
_GLOBAL, _CONTEXT = "--global-batch-size", "--context-parallel-size"
_BOTH = frozenset({"--tensor-model-parallel-size", "--pipeline-model-parallel-size"})

Words = list[tuple[Path, str]]


def layouts(manifest: Manifest) -> Iterator[Finding]:
    """Require of torchtitan's and NeMo's layouts that the ranks of the launcher fill them.

    As `of_container`, which names the sources.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            world = None if container.is_init else world_of(manifest, container)
            if world is not None:
                yield from of_container(container, world)


def of_container(container: Container, world: int) -> Iterator[Finding]:
    """Require of the layout of one program that its ranks fill it.

    torchtitan, distributed/parallel_dims.py, _validate: "Invalid parallel dims"; NeMo 1, by
    megatron/core/parallel_state.py, initialize_model_parallel, and num_microbatches_calculator.py.
    """
    words = [(path, word) for path, line in told(container) for word in split_words(line)]
    yield from _of_torchtitan(words, world)
    yield from _of_nemo(words, world)


def _of_torchtitan(words: Words, world: int) -> Iterator[Finding]:
    given: dict[str, tuple[Path, int]] = {}
    for path, flag, value in options_of(words):
        match = _DEGREE.fullmatch(f"--{flag[2:].replace('-', '_')}")
        if match is None:
            continue
        size = number(value)
        # The one that fills what the others leave is -1.
        if size is None or match["name"] in given or not (size > 0 or size == -1):
            return
        given[match["name"]] = (path, size)
    sizes = {name: size for name, (_, size) in given.items() if size > 0}
    product = prod(sizes.values())
    whole = len(sizes) == _ALL_DEGREES and product != world
    if sizes and (world % product or whole):
        written = " x ".join(f"{name} {size}" for name, size in sizes.items())
        found = f"{written} = {product}, and there are {world} ranks: torchtitan stops"
        remedy = f"let the product of all degrees be {world}"
        yield Finding(Code.TRAINING_FLAG, given[next(iter(sizes))][0], found, remedy)


def _of_nemo(words: Words, world: int) -> Iterator[Finding]:
    given: dict[str, tuple[Path, str]] = {}
    for path, word in words:
        match = _OVERRIDE.fullmatch(word)
        if match is not None:
            flag = f"--{match['name'].replace('_', '-')}"
            if flag in given:
                return
            given[flag] = (path, match["value"])
    # What is not given here stands in a file, and says how many share the batch.
    options = {key: each for key, each in given.items() if key != _GLOBAL or given.keys() >= _BOTH}
    for finding in layout(options, world) if options.keys() & (_BOTH | {_CONTEXT}) else ():
        of_batch = finding.path == given.get(_GLOBAL, ((), ""))[0]
        unsure = of_batch and _CONTEXT not in given
        yield replace(finding, level=Level.WARNING) if unsure else finding
