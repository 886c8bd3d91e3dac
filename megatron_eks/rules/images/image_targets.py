"""Rules over the GPUs that a Dockerfile builds for, and steps that undo what others installed."""

import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import Instruction, Stage, judged, refused, stages

# How each of them writes a GPU's compute capability: with a point, or its digits alone.
_WITH_POINT = frozenset({"TORCH_CUDA_ARCH_LIST"})
_DIGITS = frozenset({"CMAKE_CUDA_ARCHITECTURES", "FLASH_ATTN_CUDA_ARCHS", "NVTE_CUDA_ARCHS"})
_TARGETS = re.compile(
    rf"(?<![\w$])(?:-D)?(?P<name>{'|'.join(sorted(_WITH_POINT | _DIGITS))})[= ]"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s&|;]+)"
)
_POINT = re.compile(r"(?P<major>[0-9]{1,2})\.(?P<minor>[0-9])")
_PLAIN = re.compile(r"(?P<major>[0-9]{1,2})(?P<minor>[0-9])(?P<rest>a|f|\+PTX)?")
_PAIR = re.compile(
    r"arch=compute_(?P<arch>[0-9]{2,3})[a-f]?,code=\[?(?P<kind>sm|compute)_(?P<code>[0-9]{2,3})"
)
_CUDA_OF_BASE = re.compile(
    r"(?:docker\.io/|nvcr\.io/)?nvidia/cuda:(?P<major>[0-9]+)\.(?P<minor>[0-9]+)\b.*"
)
# NVIDIA, CUDA Toolkit release notes: the release that brought an architecture, and the one after
# which there is none of it.
_SINCE = {
    (11, 8): {"89", "90"},
    (12, 8): {"100", "120"},
    (12, 9): {"103", "121"},
}
_UNTIL = {(12, 0): {"35", "37"}, (13, 0): {"60", "61", "70"}}
_CLONE = re.compile(r"\bgit\s+clone\b[^;&|\n]*")
_BRANCH = re.compile(r"\s(?:-b|--branch)[= ]\s*(?P<ref>\S+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PLAIN_RELEASE = re.compile(r"v?([0-9]+\.[0-9]+(?:\.[0-9]+)?)")
# Some tags and branches have another form than the releases.
_FORMS = {
    "nccl": (r"v[0-9.]+-[0-9]+|v2\.(16|18|19|30)|v2\.30\.4", "v{}-1"),
    "nccl-tests": (r"v[0-9.]+", "v{}"),
    "Megatron-LM": (r"v[1-9][0-9.]*|v0\.(11\.0|15\.3)|23\.0[468]", "core_v{}"),
    "TransformerEngine": (r"v[0-9.]+", "v{}"),
    "gdrcopy": (r"v[0-9.]+", "v{}"),
}
_INDEX = re.compile(r"download\.pytorch\.org/whl/(?P<name>cuda[^/\s\"']*|cu[0-9]+\.[0-9]+)")
_OTHER_CUDA = re.compile(r"cuda[-_](toolkit|compiler|nvcc|\d)|cuda_\d|conda|--from=|runfile")
_COMMANDS = re.compile(r"&&|\|\||;|\n")
_SEARCHED = re.compile(
    r"export\s+(?P<name>LD_LIBRARY_PATH|PATH|PYTHONPATH|CUDA_HOME|LD_PRELOAD)=\S+"
)
_REMOVES = re.compile(
    r"\b(?:apt-get|apt|dpkg)\b[^;&|\n]*\s(?:remove|purge|autoremove|-r|-P)\b(?P<of>[^;&|\n]*)"
)
_OF_EFA = re.compile(
    r"(?<!\S)(libfabric\S*|libibverbs1?|librdmacm1?|rdma-core|ibverbs-providers|efa-profile"
    r"|libnccl-ofi\S*)(?=\s|$)"
)
_INSTALLS_EFA = re.compile(r"efa_installer\.sh\b(?![^;&|\n]*--uninstall)")
_RELEASE = re.compile(r"(?:aws-efa-installer-|EFA(?:_INSTALLER)?_VERSION=[\"']?v?)1\.(\d+)\.")
_LATEST = re.compile(r"aws-efa-installer-latest")
# Of this release the layout is known; older ones had the plugin elsewhere.
_KNOWN_LAYOUT = 47
_GONE = re.compile(r"/opt/(?:amazon/)?aws-ofi-nccl(?:/install)?/lib\b")
_PLUGIN = "/opt/amazon/ofi-nccl"
_SEARCHES = re.compile(r"LD_LIBRARY_PATH|NCCL_NET_PLUGIN=[\"']?/")
_REMOVED = re.compile(r"\brm\b[^;&|\n]*(ofi-nccl|\s/opt/amazon/?(\*|\s|$))")
_OF_NVIDIA = re.compile(r"nvcr\.io/nvidia/(?!cuda:)")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each stage; a finding comes with its line."""
    built = stages(listed)
    yield from judged(built, _of_step)
    yield from judged(built, _tags, refused)
    yield from judged(built, _unknown_to_nvcc, refused)


def _of_step(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    step = stage.steps[index]
    yield from _targets(step)
    yield from _pairs(step)
    yield from _wheels(step)
    yield from _lost(step)
    yield from _removed(stage, index)
    yield from _elsewhere(stage, index)


def _targets(step: Instruction) -> Iterator[tuple[str, str]]:
    """Find GPUs in the spelling of another program.

    PyTorch, torch/utils/cpp_extension.py, _get_cuda_arch_flags: "Unknown CUDA arch"; CMake,
    CUDA_ARCHITECTURES; NVIDIA/TransformerEngine, issue 976: 120, and not 12.0.
    """
    if step.name not in {"ARG", "ENV", "RUN"}:
        return
    for match in _TARGETS.finditer(step.rest):
        name, value = match["name"], match["value"].strip("\"'")
        if "$" in value:
            continue
        words = [each for each in re.split(r"[;,\s]+", value) if each]
        if name in _DIGITS and any(_POINT.match(each) for each in words):
            right = ";".join(_POINT.sub(r"\g<major>\g<minor>", each) for each in words)
            yield f"{name}={value} has a point, and it takes digits alone", f'write "{right}"'
        elif name in _WITH_POINT:
            plain = [_PLAIN.fullmatch(each) for each in words]
            if any(plain) or "," in value:
                right = ";".join(
                    f"{one['major']}.{one['minor']}{one['rest'] or ''}" if one else each
                    for one, each in zip(plain, words, strict=True)
                )
                found = f"{name}={value}: torch ends with Unknown CUDA arch"
                yield found, f'write "{right}", with semicolons or spaces between'


def _unknown_to_nvcc(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a GPU that the compiler of the base image does not know, or knows no more.

    NVIDIA, CUDA Toolkit release notes, 11.8, 12.8, 12.9 and 13.0: "Unsupported gpu architecture".
    """
    step = stage.steps[index]
    met = _CUDA_OF_BASE.fullmatch(stage.base)
    if step.name != "RUN" or not met or _OTHER_CUDA.search(f"{stage.before(index)}\n{step.rest}"):
        return
    base = int(met["major"]), int(met["minor"])
    for arch in dict.fromkeys(one["arch"] for one in _PAIR.finditer(step.rest)):
        since = next((one for one, archs in _SINCE.items() if arch in archs), base)
        until = next((one for one, archs in _UNTIL.items() if arch in archs), None)
        found = f"nvcc of CUDA {base[0]}.{base[1]} ends with Unsupported gpu architecture "
        found += f"'compute_{arch}': "
        if base < since:
            remedy = f"take an image of CUDA {since[0]}.{since[1]} or later, or leave it out"
            yield f"{found}it is known since {since[0]}.{since[1]}", remedy
        elif until and base >= until:
            yield f"{found}{until[0]}.{until[1]} took it out", "leave it out"


def _pairs(step: Instruction) -> Iterator[tuple[str, str]]:
    """Find code for a GPU older than what it is compiled from.

    NVIDIA, "CUDA Compiler Driver NVCC", GPU Code Generation: code is for the architecture of arch
    or a later one.
    """
    for match in _PAIR.finditer(step.rest) if step.name in {"ARG", "ENV", "RUN"} else ():
        if int(match["code"]) < int(match["arch"]):
            found = f"code for {match['kind']}_{match['code']} from compute_{match['arch']}, which "
            found += "is later: nvcc refuses it"
            yield found, f"write arch=compute_{match['arch']},code=sm_{match['arch']}"


def _tags(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a version in another form than the tags of its repository have.

    Tags of NVIDIA/nccl (v2.27.7-1), nccl-tests, Megatron-LM (core_v0.14.0), TransformerEngine and
    gdrcopy; git-clone(1), --branch: a branch or a tag. git ends with "Remote branch not found in
    upstream".
    """
    step = stage.steps[index]
    for match in _CLONE.finditer(step.rest) if step.name == "RUN" else ():
        branch = _BRANCH.search(match[0])
        asked = branch["ref"].strip("\"'") if branch else ""
        name = re.fullmatch(r"\$\{?(\w+)\}?", asked)
        if name:
            given = re.findall(rf"\b{name[1]}=[\"']?([^\s\"']+)", stage.before(index))
            asked = given[-1] if given else ""
        if _COMMIT.fullmatch(asked) and "||" not in step.rest[match.end() :]:
            found = f"{asked} is a commit, and --branch takes a branch or a tag: git clone ends"
            yield found, f"clone without --branch and --depth, then git checkout {asked}"
        release = _PLAIN_RELEASE.fullmatch(asked)
        for repository, (form, example) in _FORMS.items() if release else ():
            of_it = re.search(rf"NVIDIA/{repository}(\.git)?(?=\s|$)", match[0])
            if of_it and release and not re.fullmatch(form, asked):
                found = f"{repository} has no tag {asked}: git clone ends"
                yield found, f"write {example.format(release[1])}"


def _wheels(step: Instruction) -> Iterator[tuple[str, str]]:
    """Find an index of PyTorch's wheels that there is not.

    PyTorch, "Get Started": cu128, cpu, rocm and xpu below /whl/.
    """
    for match in _INDEX.finditer(step.rest) if step.name == "RUN" else ():
        digits = re.sub(r"[^0-9]", "", match["name"])
        found = f"PyTorch has no index {match['name']}: pip finds no torch there"
        yield found, f"write {f'cu{digits}' if digits else 'cu128'}"


def _lost(step: Instruction) -> Iterator[tuple[str, str]]:
    """Find a step that sets where programs look, and does nothing else.

    Docker, Dockerfile reference, RUN and ENV: an export ends with the shell of its step.
    """
    commands = [each.strip() for each in _COMMANDS.split(step.rest) if each.strip()]
    if step.name != "RUN" or not all(each.startswith("export ") for each in commands):
        return
    for each in commands:
        match = _SEARCHED.fullmatch(each)
        if match:
            found = f"{match['name']} is set for this step alone, and ends with it"
            yield found, f"write ENV {each.removeprefix('export').strip()}"


def _removed(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a removal of what EFA's installer has just installed.

    AWS, awsome-distributed-training, nccl-tests.Dockerfile: libibverbs goes before the installer
    runs, which brings its own; libfabric's EFA provider is linked with it.
    """
    step = stage.steps[index]
    for match in _REMOVES.finditer(step.rest) if step.name == "RUN" else ():
        before = f"{stage.before(index)}\n{step.rest[: match.start()]}"
        after = step.rest[match.end() :]
        gone = _OF_EFA.search(match["of"])
        if gone and _INSTALLS_EFA.search(before) and not _INSTALLS_EFA.search(after):
            found = f"{gone[0]} goes after EFA's installer, which needs it: NCCL takes TCP"
            yield found, "leave it, or remove it before efa_installer.sh runs"


def _elsewhere(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a search for NCCL's plugin where today's EFA installer does not put it.

    NVIDIA-NeMo/RL, pull request 2585: a stock installation has /opt/amazon/ofi-nccl/lib and no
    /opt/amazon/aws-ofi-nccl, and NCCL goes over its sockets.
    """
    step, before = stage.steps[index], stage.before(index)
    if step.name != "ENV" or not _SEARCHES.search(step.rest) or _PLUGIN in step.rest:
        return
    releases = [int(each) for each in _RELEASE.findall(before)]
    known = (releases and releases[-1] >= _KNOWN_LAYOUT) or _LATEST.search(before)
    match = _GONE.search(step.rest)
    # NVIDIA's images may have it in /opt/amazon/aws-ofi-nccl themselves.
    kept = _OF_NVIDIA.match(stage.base) and not _REMOVED.search(before)
    # Whoever builds, copies or links the plugin there names it, not to remove it.
    made = re.sub(r"\brm\s[^;&|\n]*", "", before).replace(_PLUGIN, "")
    if known and match and not kept and _INSTALLS_EFA.search(before) and "ofi-nccl" not in made:
        found = f"{match[0]} is not there: EFA's installer puts NCCL's plugin into {_PLUGIN}/lib"
        yield found, f"write {_PLUGIN}/lib in its place"
