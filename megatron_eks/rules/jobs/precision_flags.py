"""Rule over FP8 and FP4 on the command line, and the GPUs that a pod allows."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.gpus import GPUS, Gpu
from megatron_eks.catalog.precisions import lacks
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.hardware import instance_types, node_terms
from megatron_eks.rules.jobs.training_flags import megatron_flags, split_words
from megatron_eks.rules.workloads import Container, Manifest, Pod

# NVIDIA's GPU feature discovery, Karpenter's well-known labels.
_LABELS = ("nvidia.com/gpu.product", "karpenter.k8s.aws/instance-gpu-name")
_FAMILY = "karpenter.k8s.aws/instance-family"
_FAMILIES = {"p4d": "A100_40", "p4de": "A100_80", "p5": "H100", "p5e": "H200", "p5en": "H200"}
_PRODUCTS = {"a100": "A100_80", "h100": "H100", "h200": "H200", "a10g": "A10G"}
_ASKS = frozenset({"--fp8-format", "--fp8-hybrid", "--fp8-e4m3", "--fp8-recipe"})
_ASKS_FP4 = frozenset({"--fp4-format", "--fp4-recipe"})
# Megatron Bridge's and NeMo's overrides, which are words without dashes.
_OVERRIDE = re.compile(r"\+*(model\.fp8(_format)?=(hybrid|e4m3)|mixed_precision=\S*fp[48]\S*)")
_BRANCHES = re.compile(r"(^|[\s;])(if|case|for|while|until|\[\[?|test)\s|\|\|")
_ACCELERATE = "ACCELERATE_MIXED_PRECISION"
_ANY_PROGRAM = frozenset({"--mixed_precision", "--mixed-precision"})


def precisions(manifest: Manifest) -> Iterator[Finding]:
    """Refuse FP8 and FP4 on GPUs that have no units for it.

    NVIDIA Transformer Engine, transformer_engine/pytorch/quantization.py: FP8 from compute
    capability 8.9, in blocks from 9.0, MXFP8 and NVFP4 from 10.0; it asserts so at the first step.
    """
    for pod in manifest.pods:
        gpus = _gpus(pod)
        for container in pod.containers if gpus else ():
            asked = _asked(container)
            if asked is None:
                continue
            path, written, recipe = asked
            missing = [said for gpu in gpus if (said := lacks(gpu, recipe))]
            if missing:
                found = f"{written}: {missing[0]}"
                fitting = "use bf16" if "no FP8" in missing[0] else "use --fp8-recipe tensorwise"
                level = Level.ERROR if len(missing) == len(gpus) else Level.WARNING
                remedy = f"{fitting}, or select a type that has it"
                yield Finding(Code.PRECISION, path, found, remedy, level)


def _gpus(pod: Pod) -> list[Gpu]:
    """Return the GPUs that a pod allows, by the type or the labels that it selects."""
    types = instance_types(pod)
    if types:
        return [each.gpu for each in types]
    found: list[Gpu] = []
    for term in node_terms(pod):
        values = [
            (key, value.lower())
            for key, operator, given in term
            if key in {*_LABELS, _FAMILY} and operator == "In"
            for value in given
        ]
        named = [name for key, value in values if (name := _name(key, value))]
        if not named or len(named) < len(values):
            return []
        found += [GPUS[name] for name in named]
    return found


def _name(key: str, value: str) -> str | None:
    if key == _FAMILY:
        return _FAMILIES.get(value)
    words = value.replace("_", "-").split("-")
    return next((name for product, name in _PRODUCTS.items() if product in words), None)


def _asked(container: Container) -> "tuple[Path, str, str] | None":
    """Return where a precision is asked for, as it is written, and its recipe."""
    words = [(path, word) for path, line in container.words for word in split_words(line)]
    pairs = [
        (path, *_parted(word, after))
        for (path, word), (_, after) in zip(words, [*words[1:], ((), "")], strict=False)
    ]
    megatron = list(megatron_flags(container))
    # A script keeps options in a variable or a list; with branches nobody knows which ones.
    every = megatron and not _BRANCHES.search(container.line)
    options = {flag: (path, value) for path, flag, value in (pairs if every else megatron)}
    recipe = options.get("--fp8-recipe", ((), "delayed"))[1]
    for flags_of, name in ((_ASKS_FP4, "nvfp4"), (_ASKS, recipe)):
        for flag in sorted(flags_of & options.keys(), key=lambda each: each != "--fp8-recipe"):
            path, value = options[flag]
            alone = flag in {"--fp8-hybrid", "--fp8-e4m3"}
            return path, flag if alone else f"{flag} {value}", name
    for path, flag, value in pairs:
        if flag in _ANY_PROGRAM and value == "fp8":
            return path, f"{flag} fp8", "delayed"
        if not flag.startswith("-") and _OVERRIDE.fullmatch(f"{flag}={value}"):
            recipes = [each for each in ("mxfp8", "nvfp4") if each in value]
            return path, f"{flag}={value}", (recipes or ["delayed"])[0]
    for each in container.variables:
        if each.name == _ACCELERATE and each.value == "fp8":
            return (*container.path, "env", each.index, "value"), "fp8", "delayed"
    return None


def _parted(word: str, after: str) -> tuple[str, str]:
    """Return an option and its value; a list or a text of a script may begin with it."""
    flag, _, value = word.lstrip("(").partition("=")
    if "--" in value and not flag.startswith("-"):
        flag, _, value = value.lstrip("(").replace("=", " ", 1).partition(" ")
    return flag, (value or after).split(" ")[0].rstrip(")")
