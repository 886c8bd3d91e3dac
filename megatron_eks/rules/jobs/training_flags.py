"""Rules over command lines of training programs: Megatron-LM's options."""

import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.megatron_options import OPTIONS, VERSION
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.values import number, shown
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

PROGRAM = re.compile(r"(^|/)(pretrain_(gpt|mamba|t5|bert|vlm)|train_megatron)\.py$")
_SPACE = re.compile(r"\s")
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", ">", ">>", "2>&1"})
_TENSOR = "--tensor-model-parallel-size"
_CLOSE = 0.8
# Options of earlier releases and of many examples (Megatron-LM, arguments.py before core 0.1, and
# issue 394), with what took their place; validate_args still reads some of them, and stops.
_REMOVED = {
    "--activations-checkpoint-method": "write --recompute-granularity full --recompute-method",
    "--activations-checkpoint-num-layers": "write --recompute-num-layers",
    "--batch-size": "write --micro-batch-size",
    "--checkpoint-activations": "write --recompute-activations",
    "--checkpoint-num-layers": "write --recompute-num-layers",
    "--DDP-impl": "remove it",
    "--data-impl": "remove it: indexed data sets are mapped into memory",
    "--distribute-checkpointed-activations": "write --distribute-saved-activations",
    "--model-parallel-size": "write --tensor-model-parallel-size",
    "--no-contiguous-buffers-in-local-ddp": "remove it",
    "--scaled-upper-triang-masked-softmax-fusion": "remove it: it is on where it can be",
    "--warmup": "write --lr-warmup-fraction",
}
# Forks that kept them.
_OF_OTHERS = re.compile(r"--deepspeed\b|--zero-stage|Megatron-DeepSpeed|gpt-neox", re.IGNORECASE)


def megatron_options(manifest: Manifest) -> Iterator[Finding]:
    """Require options that Megatron-LM's training program has, and tensor parallelism in a node.

    Megatron-LM, megatron/training/arguments.py at the version of the catalogue; argparse ends the
    program, and a program of one's own may add options, so what is not nearly one is not judged.
    """
    for container in _containers(manifest):
        for path, flag, value in megatron_flags(container):
            if flag in _REMOVED and not _OF_OTHERS.search(container.line):
                found = f"Megatron-LM {VERSION} has no option {flag} any more: it stops at once"
                yield Finding(Code.TRAINING_FLAG, path, found, _REMOVED[flag], Level.WARNING)
            elif flag not in OPTIONS and not _abbreviates(flag):
                usual = flag.replace("_", "-").lower()
                for close in get_close_matches(usual, OPTIONS, 1, _CLOSE):
                    found = f"Megatron-LM {VERSION} has no option {shown(flag)}"
                    # Another version may have what is only like one of these.
                    level = Level.ERROR if usual in OPTIONS else Level.WARNING
                    yield Finding(Code.TRAINING_FLAG, path, found, f"did you mean {close}?", level)
            gpus, size = container.amount(GPU), number(value)
            if flag == _TENSOR and gpus and size is not None and size > gpus:
                found = f"tensor parallelism over {size} GPUs, and the container has {gpus}"
                remedy = "keep it inside a node, where NVLink is"
                yield Finding(Code.TRAINING_FLAG, path, found, remedy, Level.WARNING)


def _abbreviates(flag: str) -> bool:
    """Tell whether argparse takes the flag for the one option that begins so."""
    return sum(option.startswith(flag) for option in OPTIONS) == 1


def _containers(manifest: Manifest) -> Iterator[Container]:
    pods: list[Pod] = manifest.pods if manifest.is_job or manifest.kind == "Pod" else []
    for pod in pods:
        yield from (each for each in pod.containers if not each.is_init)


def megatron_flags(container: Container) -> Iterator[tuple[Path, str, str]]:
    """Return the options after the name of Megatron's program, with their first value."""
    return options_of(megatron_words(container))


def options_of(words: list[tuple[Path, str]]) -> Iterator[tuple[Path, str, str]]:
    """Return the options among words, each with what stands behind its `=` or after it."""
    following = [*(word for _, word in words[1:]), ""]
    for (path, word), after in zip(words, following, strict=False):
        if word.startswith("--"):
            flag, _, value = word.partition("=")
            yield path, flag, value or after


def megatron_words(container: Container) -> list[tuple[Path, str]]:
    """Return the words from the name of Megatron's program to the end of its command."""
    seen = False
    found: list[tuple[Path, str]] = []
    for path, written in told(container):
        for word in split_words(written):
            seen = (seen or PROGRAM.search(word) is not None) and word not in _SEPARATORS
            if seen and word == "--":
                # A program that starts Megatron's has options of its own before the two dashes.
                del found[1:]
            elif seen:
                found.append((path, word))
    return found


def split_words(word: str) -> list[str]:
    """Split a shell's script into words; a single word stays one."""
    if not _SPACE.search(word):
        return [word]
    # The end of a line ends the command.
    lines = word.replace("\\\n", " ").replace("\n", "\n;\n")
    try:
        return shlex.split(lines, comments=True)
    except ValueError:
        return lines.split()
