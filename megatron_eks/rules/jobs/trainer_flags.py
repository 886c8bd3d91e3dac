"""Rule over pairs of options that Hugging Face's Trainer refuses."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import megatron_words, options_of, split_words
from megatron_eks.rules.workloads import Container, Manifest

_BRANCHES = re.compile(r"(^|[\s;])(if|case|for|while|until|\[\[?|test)\s|\|\|")
_TRUE = frozenset({"", "1", "t", "true", "y", "yes"})
# transformers, trainer_utils.py, FSDPOption.
_FSDP = re.compile(
    r"[\"']?(full_shard|shard_grad_op|no_shard|hybrid_shard(_zero2)?|auto_wrap|offload)\b.*"
)
_SETTINGS = re.compile(r"\S+\.json")
_OWN = "--per-device-train-batch-size"
_USUAL = frozenset({"--model-name-or-path", "--output-dir"})

Options = dict[str, tuple[Path, str]]


def pairs(manifest: Manifest) -> Iterator[Finding]:
    """Refuse two ways to split a model, and two formats of numbers, in one Trainer.

    transformers, trainer.py: "Using --fsdp xxx together with --deepspeed is not possible";
    training_args.py, __post_init__: "At most one of fp16 and bf16 can be True, but not both".
    """
    for pod in manifest.pods:
        for container in pod.containers:
            options = _options(container)
            (path, split), (_, settings) = (
                options.get(each, ((), "")) for each in ("--fsdp", "--deepspeed")
            )
            if _FSDP.fullmatch(split) and _SETTINGS.fullmatch(settings):
                found = "--fsdp beside --deepspeed: the Trainer stops"
                yield Finding(Code.TRAINING_FLAG, path, found, "keep one of the two")
            usual = _OWN in options or options.keys() >= _USUAL
            on = [each for each in ("--fp16", "--bf16") if _is_on(options, each)]
            if usual and len(on) > 1:
                found = "--fp16 beside --bf16: the Trainer stops"
                yield Finding(
                    Code.TRAINING_FLAG, options["--fp16"][0], found, "keep one of the two"
                )


def _options(container: Container) -> Options:
    """Return the options of a program that is not Megatron's; none where a shell chooses some."""
    if container.is_init or megatron_words(container) or _BRANCHES.search(container.line):
        return {}
    words = [(path, word) for path, line in told(container) for word in split_words(line)]
    found: Options = {}
    for path, flag, value in options_of(words):
        name = flag.replace("_", "-")
        if name in found:
            return {}
        found[name] = (path, value)
    return found


def _is_on(options: Options, flag: str) -> bool:
    if flag not in options:
        return False
    value = options[flag][1].lower()
    return value in _TRUE or value.startswith("-")
