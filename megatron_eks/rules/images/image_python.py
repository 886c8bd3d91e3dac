"""Rules over Python packages that a Dockerfile compiles against PyTorch and CUDA."""

import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import (
    PUBLIC,
    Instruction,
    Stage,
    ends_step,
    judged,
    refused,
    stages,
    warned,
)

_INSTALL = re.compile(
    r"(?:^|[\s;&(])(?:pip3?|python3? -m pip|uv pip)\s+install\b(?P<words>[^;&|\n]*)"
)
_TAKES_A_VALUE = re.compile(
    r"-[rcifteC]|--(requirement|constraint|index-url|extra-index-url|find-links|target|prefix|root"
    r"|config-settings?|global-option|build-option|no-binary|only-binary|cache-dir|trusted-host"
    r"|timeout|retries|progress-bar|no-build-isolation-package)"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[\w,-]*\])?")
_APEX = re.compile(r"github\.com[/:]NVIDIA/apex", re.IGNORECASE)
_ENGINE = re.compile(
    r"github\.com[/:]NVIDIA/TransformerEngine(?:\.git)?(?:@(?P<ref>[^\s\"'#]+))?", re.IGNORECASE
)
_ENGINE_OF_PYPI = re.compile(r"transformer[-_]engine\[\S*pytorch\S*\](?P<ref>==\S+)?")
_BARE_ENGINE = re.compile(r"transformer[-_]engine(?P<ref>[=<>~!].*)?")
_ENGINE_PARTS = re.compile(
    r"transformer[-_]engine([-_](torch|jax|cu\d+)|\[)|NVTE_FRAMEWORK|TransformerEngine|\bjax\b|paddle"
)
_FIRST_ENGINE = re.compile(r"(==|v|release_v)?1\.")
# Their setup.py asks torch and nvcc; the first ones name no torch among what a build needs.
_IMPORT_TORCH = ("flash-attn", "grouped-gemm", "apex")
_COMPILED = (*_IMPORT_TORCH, "mamba-ssm", "causal-conv1d", "transformer-engine[pytorch]")
WITHOUT_NVCC = re.compile(
    r"(docker\.io/)?((nvcr\.io/)?nvidia/cuda:.*-(base|runtime)\b.*|pytorch/pytorch:.*-runtime"
    r"|(library/)?(python|ubuntu|debian):.*)"
)
_BRINGS_NVCC = re.compile(
    r"nvcc|cuda[-_]?(toolkit|compiler|minimal-build|\d[\w.-]*\.run)|nvidia-cuda|conda|cuda-\d"
)
_WITHOUT_TORCH = re.compile(
    r"(docker\.io/)?((nvcr\.io/)?nvidia/cuda:.*|(library/)?(python|ubuntu|debian):.*)"
)
_MAY_BRING_TORCH = re.compile(
    r"torch|requirement|conda|uv sync|poetry|--from|\.whl|\s-r\s|\b(pip3?|uv)\b[^;&|\n]*\$"
    r"|(?<!efa_installer)(?<!autogen)\.sh\b|(^|[;&\n])\s*\$"
)
_OF_NVIDIA = re.compile(r"nvcr\.io/nvidia/(pytorch|nemo)[:@]")
_CUDA_OF_BASE = re.compile(r"(?:docker\.io/|nvcr\.io/)?nvidia/cuda:([0-9]{2})\..*")
_CUDA_OF_WHEELS = re.compile(r"download\.pytorch\.org/whl/(?:nightly/|test/)?cu([0-9]{2})[0-9]")
_TAKEN_OUT = re.compile(r"\bpip3? uninstall\b.*\btorch\b")
_MAY_BRING_WHEELS = re.compile(
    r"--from|find[-_]links|\s-f\s|\bpip3? (wheel|config|download)\b|pip\.conf"
    r"|(?i:(?<!TORCH_)(extra-)?index[-_]url(?![= ]https://download\.pytorch\.org))|\.whl"
)
_ISOLATED_NOT = re.compile(r"--no-build-isolation|PIP_NO_BUILD_ISOLATION")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge what pip installs; a finding comes with its line."""
    built = stages(listed)
    yield from judged(built, _of_step)
    for stage in built:
        for index in range(stage.own, len(stage.steps)):
            yield from _of_builds(stage, index)


def _of_builds(stage: Stage, index: int) -> Iterator[tuple[Finding, int]]:
    step, before = stage.steps[index], stage.before(index)
    for match in _INSTALL.finditer(step.rest) if step.name == "RUN" else ():
        names = _names(step, match)
        here = f"{before}\n{step.rest[: match.start()]}"
        said = refused if _ends(stage, index, match) else warned
        for found, remedy in (
            *_isolated(stage, names, f"{here}{match[0]}", here),
            *_compiled(stage, names, here),
        ):
            yield said(step, found, remedy)


def _ends(stage: Stage, index: int, match: re.Match[str]) -> bool:
    """Tell whether a release of flash-attn is made from its source, with which the step ends.

    PyPI has no wheel of it; an index, a list of links or another stage may bring one.
    """
    whole = f"{stage.before(index)}\n{stage.steps[index].rest}"
    plain = not _MAY_BRING_WHEELS.search(whole) and "$" not in match["words"]
    known = PUBLIC.fullmatch(stage.base) and not _OF_NVIDIA.match(stage.base)
    # uv may have its own settings for builds, in a file of the project.
    own = re.search(r"\bflash[-_]attn==[12]\.", match["words"]) and "uv pip" not in match[0]
    return bool(own and plain and known and ends_step(stage.steps[index], match.end()))


def _names(step: Instruction, match: re.Match[str]) -> list[str]:
    words = match["words"]
    names = [each for each in map(_named, _requirements(words.split())) if each]
    if _APEX.search(step.rest) and re.search(r"(?<!\S)\.{1,2}/?(?!\S)|/apex\b", words):
        names.append("apex")
    return names


def _of_step(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    before, rest = stage.before(index), stage.steps[index].rest
    for match in _INSTALL.finditer(rest) if stage.steps[index].name == "RUN" else ():
        words = match["words"].split()
        names = _names(stage.steps[index], match)
        here = f"{before}\n{rest[: match.start()]}"
        yield from _other_torch(words, f"{here}{match[0]}")
        yield from _other_cuda(stage, names, here)
        yield from replaced(stage, words, here)
        yield from _bare_engine(stage, words, f"{before}\n{rest}")
        if "$" not in match["words"]:
            yield from _plain_apex(names, f"{here}{match[0]}")


def _requirements(words: list[str]) -> Iterator[str]:
    """Return what pip is told to install; an archive of compiled code is nothing to build."""
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and "=" not in word and _TAKES_A_VALUE.fullmatch(word) is not None
            continue
        yield word.strip("\"'")


def _named(word: str) -> str:
    """Return a requirement's name as pip compares it."""
    if _APEX.search(word):
        return "apex"
    match = None if "://" in word or word.endswith(".whl") else _NAME.match(word)
    if match is None or match[0].lower() == "apex":
        return ""  # PyPI's apex is another program
    return match[0].lower().replace("_", "-")


def _isolated(stage: Stage, names: list[str], whole: str, before: str) -> Iterator[tuple[str, str]]:
    """Find a build that cannot see torch: pip's own, or one in an image without torch.

    Dao-AILab/flash-attention, README, and NVIDIA/apex, README: --no-build-isolation, because
    setup.py imports torch; pip documentation, "Build System Interface", build isolation.
    """
    own = next((each.partition("[")[0] for each in names if each in _IMPORT_TORCH), None)
    if own is None:
        return
    if not _ISOLATED_NOT.search(whole):
        found = f"{own} imports torch to build, and pip builds it where torch is not: it ends with "
        found += "No module named 'torch'"
        yield found, "add --no-build-isolation, after torch, packaging, ninja and wheel are there"
    elif _WITHOUT_TORCH.fullmatch(stage.base) and not _MAY_BRING_TORCH.search(before):
        found = f"{own} imports torch to build, and no step before it installs torch"
        yield found, "install torch first"


def _other_torch(words: list[str], whole: str) -> Iterator[tuple[str, str]]:
    """Find a Transformer Engine that pip compiles against a torch of its own choice.

    NVIDIA/TransformerEngine, pyproject.toml, build-system.requires (torch), and "Installation":
    --no-build-isolation. The first releases had no such list.
    """
    for word in words if not _ISOLATED_NOT.search(whole) else ():
        match = _ENGINE.search(word) or _ENGINE_OF_PYPI.match(word.strip("\"'"))
        ref = (match["ref"] or "") if match else ""
        if name := re.fullmatch(r"\$\{?(\w+)\}?", ref):
            given = re.findall(rf"\b{name[1]}=[\"']?([^\s\"']+)", whole)
            ref = given[-1] if given else "$"
        if match and "$" not in ref and not _FIRST_ENGINE.match(ref):
            found = "pip builds the Transformer Engine with a torch of its own choice, and not the "
            found += "image's: undefined symbols when it is imported"
            yield found, "add --no-build-isolation"


def _compiled(stage: Stage, names: list[str], before: str) -> Iterator[tuple[str, str]]:
    """Find an extension in CUDA that is built where there is no compiler for it.

    Dao-AILab/flash-attention, setup.py, and issues 246 and 509: "only images whose names contain
    'devel' will provide nvcc"; NVIDIA, container images of CUDA: base, runtime and devel.
    """
    own = next((each for each in names if each in _COMPILED), None)
    skipped = "SKIP_CUDA_BUILD" in before or compiler_may_be_there(before)
    if own is not None and WITHOUT_NVCC.fullmatch(stage.base) and not skipped:
        found = f"{own} is compiled by nvcc, and {stage.base} has none: the build fails"
        yield found, "build it on the -devel- image, in a stage of its own if it is to be small"


def compiler_may_be_there(before: str) -> bool:
    """Tell whether the steps before may have brought CUDA's compiler."""
    return _BRINGS_NVCC.search(before) is not None


def _other_cuda(stage: Stage, names: list[str], before: str) -> Iterator[tuple[str, str]]:
    """Find an extension that is built with another CUDA than torch was.

    PyTorch, torch/utils/cpp_extension.py, _check_cuda_version: another major version is refused.
    """
    own = next((each for each in names if each in _COMPILED), None)
    base, wheels = _CUDA_OF_BASE.fullmatch(stage.base), _CUDA_OF_WHEELS.findall(before)
    if own is not None and base and wheels and wheels[-1] != base[1]:
        found = f"{own} is compiled with CUDA {base[1]} of the image, and torch is of CUDA "
        found += f"{wheels[-1]}: torch refuses to build it"
        yield found, "take torch and the image of one CUDA"


def replaced(stage: Stage, words: list[str], before: str) -> Iterator[tuple[str, str]]:
    """Find another torch in an image of NVIDIA's that brings its own, and was not rid of it.

    NVIDIA, PyTorch release notes: its containers hold a build of their own, which
    /etc/pip/constraint.txt keeps; Transformer Engine and Apex there are compiled for it.
    """
    other = {"-U", "--upgrade", "--force-reinstall"}  # without them what is there is enough
    brought = _OF_NVIDIA.match(stage.base) and not _TAKEN_OUT.search(before)
    for word in _requirements(words) if brought else ():
        name = re.split(r"[=<>~!]", word, maxsplit=1)[0]
        asked = "==" in word or not other.isdisjoint(each.partition("=")[0] for each in words)
        if name == "torch" and asked:
            found = f"{word} takes the place of NVIDIA's own PyTorch, for which the Transformer "
            found += "Engine, Apex and flash-attn of this image were compiled"
            yield found, "leave torch out, or take the image that has the version"


def _bare_engine(stage: Stage, words: list[str], whole: str) -> Iterator[tuple[str, str]]:
    """Find a Transformer Engine without the part that is for PyTorch.

    NVIDIA/TransformerEngine, issues 1379 and 1981: the wheel has the core alone, and "module
    'transformer_engine' has no attribute 'pytorch'"; README, "Installation", pip.
    """
    there = _OF_NVIDIA.match(stage.base) and "uninstall" not in whole
    for word in _requirements(words):
        match = _BARE_ENGINE.fullmatch(word)
        if match is None or (there and not match["ref"]) or _ENGINE_PARTS.search(whole):
            continue
        found = f"{word} is the core alone: module 'transformer_engine' has no attribute 'pytorch'"
        ref = match["ref"] or ""
        yield found, f"write --no-build-isolation 'transformer_engine[pytorch]{ref}'"


def _plain_apex(names: list[str], whole: str) -> Iterator[tuple[str, str]]:
    """Find Apex without its extensions, which Megatron's optimizer and norms need.

    NVIDIA/apex, README, "Linux"; EleutherAI/gpt-neox, issue 1165.
    """
    if "apex" in names and not re.search(r"cuda_ext|CUDA_EXT|ALL_CONTRIB", whole):
        found = "Apex without its CUDA extensions: FusedAdam ends with an error when it is made"
        remedy = 'add --config-settings "--build-option=--cpp_ext" and "...=--cuda_ext"'
        yield found, remedy
