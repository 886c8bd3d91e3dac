"""Rules over what a step of a Dockerfile fetches: the file, its directory, and its version."""

import posixpath
import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import (
    PUBLIC,
    Instruction,
    Stage,
    refused,
    stages,
    warned,
)

_COMMANDS = re.compile(r"&&|\|\||;|\n")
_ADDRESS = re.compile(
    r"https?://[^\s\"'|<>]+/(?P<file>[^\s\"'/|<>?]+\.(?:tar|tgz|zip|gz|xz|bz2|sh))"
)
_KEEPS = re.compile(r"\s(?:-[a-zA-Z]*[oO]|--output|--remote-name)|[|>`]|\$\(")
_ANY = re.compile(r"https?://\S+")
_READS = re.compile(r"(?:sudo\s+)?(?:tar|unzip|gunzip|sha256sum|sh|bash|chmod)\s")
_INSTALLER = "aws-efa-installer"
_UNPACKS = re.compile(r"(?:^|\|)\s*tar\s(?!.*(?:--strip|--transform|\s-C|--directory|--one-top))")
_CD = re.compile(r"cd\s+[\"']?(?P<place>[\w.-]*efa[\w.-]*)/?[\"']?")
# Names that a public image may set itself.
OF_BASES = re.compile(
    r"\w*_VERSION|(CUDA|NCCL|CUDNN|PYTHON|NV|NVIDIA|TORCH|PYTORCH|NEMO|OMPI|OPAL|UCX)_?\w*"
    r"|(LD_)?(LIBRARY_)?PATH|HOME|USER"
)
_VERSION = re.compile(
    r"\bgit\s+clone\b[^;&|\n]*?\s(?:-b|--branch)[= ]\s*[\"']?\$\{?(?P<branch>[A-Z]\w*)\}?"
    r"[\"']?(?=\s)"
    r"|\bgit\s+checkout\s+(?:-\S+\s+)*[\"']?\$\{?(?P<commit>[A-Z]\w*)\}?[\"']?\s*(?=$|[;&|\n])"
    r"|\bpip3?\s+install\b[^;&|\n]*?==\$\{?(?P<package>[A-Z]\w*)\}?(?=[\s\"';&|]|$)"
)
# Repositories in which configure is made by autogen.sh, and is not there before.
_CLONES_WITHOUT = re.compile(
    r"\bgit\s+clone\b[^;&|\n]*?github\.com/(?P<owner>aws|ofiwg|openucx)/"
    r"(?P<name>aws-ofi-nccl|libfabric|ucx)(?=\.git\b|[\s\"']|$)"
)
_CONFIGURES = re.compile(r"(?:^|[;&|(])\s*\./configure\b")
_MAKES_CONFIGURE = re.compile(
    r"autogen|autoreconf|bootstrap|\bgit\s+clone\b|\btar\s|\bunzip\b|configure\b|\.sh\b|\$\("
)
_ENTERS = re.compile(r"\b(?:cd|pushd)\s+[\"']?([^\s;&\"']+)")
_CLONES_ENGINE = re.compile(
    r"\bgit\s+clone\b[^;&|\n]*github\.com/NVIDIA/TransformerEngine\b[^;&|\n]*"
)
_BRANCH = re.compile(r"\s(?:-b|--branch)[= ]\s*(?P<ref>\S+)")
_EARLY_ENGINE = re.compile(r"(?:v|release_v)1\.(?:[5-9]|1[01])(?:\.\d+)?")
_INSTALLS_HERE = re.compile(r"\bpip3?\s+install\b[^;&|\n]*\s\./?(?=\s|$|[;&|])|\bsetup\.py\s")
_SETS_OTHERS = re.compile(r"(?:^|[;&|\s])(?:source|\.|eval)\s|--env-file|<<")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each step of each stage; a finding comes with its line."""
    arguments = [step.rest for step in listed if step.name == "ARG"]
    outer = {word.partition("=")[0] for rest in arguments for word in rest.split()}
    for stage in stages(listed):
        for index in range(stage.own, len(stage.steps)):
            step = stage.steps[index]
            if step.name != "RUN" or "||" in step.rest:
                continue
            for found, remedy in (
                *_not_kept(stage, index),
                *_elsewhere(stage, index),
                *_without_configure(stage, index),
                *_without_submodules(stage, index),
            ):
                yield refused(step, found, remedy)
            for found, remedy in _unset(stage, index, outer):
                yield warned(step, found, remedy)


def _not_kept(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find an archive that curl prints, and that the same step then reads as a file.

    curl(1), "Output": without -o, -O or their long forms it goes to the standard output.
    """
    commands = [each.strip() for each in _COMMANDS.split(stage.steps[index].rest)]
    for number, command in enumerate(commands):
        match = _ADDRESS.search(command) if re.match(r"(sudo\s+)?curl\s", command) else None
        if match is None or _KEEPS.search(command):
            continue
        file = match["file"]
        before = "\n".join([stage.before(index), *commands[:number]])
        readers = [each for each in commands[number + 1 :] if file in each]
        if readers and _READS.match(readers[0]) and not _may_bring(stage, index, file, before):
            found = f"curl without -O prints {file} and keeps no file: {readers[0].split()[0]} "
            yield f"{found}finds none, and the build ends", "add -O to curl"


def _may_bring(stage: Stage, index: int, file: str, before: str) -> bool:
    copies = any(each.name in {"ADD", "COPY"} for each in stage.steps[:index])
    return copies or file in before or "--mount=" in stage.steps[index].rest


def _elsewhere(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a directory that unpacking EFA's installer does not make.

    EC2 User Guide, "Get started with EFA and NCCL", step 3: tar -xf, and cd aws-efa-installer.
    """
    unpacked = False
    made = stage.before(index)
    for command in _COMMANDS.split(stage.steps[index].rest):
        met = _CD.fullmatch(command.strip())
        place = met["place"] if met else ""
        if met and unpacked and place != _INSTALLER:
            # What a command or WORKDIR before names may have made it; an address makes nothing.
            if not re.search(rf"(?<![\w-]){re.escape(place)}(?![\w-])", _ANY.sub("", made)):
                found = f"no directory {place}: the archive unpacks into {_INSTALLER}, and cd ends "
                yield f"{found}the build", f"write cd {_INSTALLER}"
            return
        unpacked = unpacked or (_INSTALLER in command and _UNPACKS.search(command) is not None)
        made += f"\n{command}"


def _without_configure(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a clone that has no configure yet, where a release's archive would have one.

    aws/aws-ofi-nccl, ofiwg/libfabric and openucx/ucx, README, "Building": ./autogen.sh first.
    """
    step, before = stage.steps[index], stage.before(index)
    for match in _CONFIGURES.finditer(step.rest):
        earlier = f"{before}\n{step.rest[: match.start()]}"
        clones = list(_CLONES_WITHOUT.finditer(earlier))
        made = earlier[clones[-1].end() :] if clones else ""
        copies = any(each.name in {"ADD", "COPY"} for each in stage.steps[:index])
        if not clones or copies or _MAKES_CONFIGURE.search(made):
            continue
        name = clones[-1]["name"]
        entered = [posixpath.basename(one.rstrip("/")) for one in _ENTERS.findall(made)]
        target = re.match(r"(?:\.git)?\s+([\w./-]+)\s*(?:[;&\n]|$)", made)
        place = posixpath.basename(target[1].rstrip("/")) if target else name
        if entered[-1:] == [place]:
            found = f"a clone of {clones[-1]['owner']}/{name} has no configure: No such file or "
            yield f"{found}directory", "run ./autogen.sh before it"


def _without_submodules(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a Transformer Engine that is built from a clone without its submodules.

    NVIDIA/TransformerEngine, "Installation", from source: git clone --recursive; issues 171 and
    261: cudnn-frontend is one of them. Later releases fetch them themselves.
    """
    rest = stage.steps[index].rest
    met = _CLONES_ENGINE.search(rest)
    branch = _BRANCH.search(met[0]) if met else None
    if met is None or branch is None or re.search(r"--recurs|submodule", f"{met[0]}{rest}"):
        return
    ref = branch["ref"].strip("\"'")
    if name := re.fullmatch(r"\$\{?(\w+)\}?", ref):
        given = re.findall(rf"\b{name[1]}=[\"']?([^\s\"']+)", stage.before(index))
        ref = given[-1] if given else ""
    later = "\n".join(each.rest for each in stage.steps[index + 1 :])
    if not _EARLY_ENGINE.fullmatch(ref) or re.search("submodule|3rdparty", later):
        return
    after = rest[met.end() :]
    entered = re.search(r"\bcd\s+[\"']?[^\s;&\"']*\bTransformerEngine/?[\"']?\s*&&", after)
    if entered and _INSTALLS_HERE.search(after):
        found = f"Transformer Engine {ref} is built from a clone without its submodules: "
        found += "cudnn-frontend is missing, and the build ends"
        yield found, "add --recursive to git clone"


def _unset(stage: Stage, index: int, outer: set[str]) -> Iterator[tuple[str, str]]:
    """Find a version by a variable that nothing in the file sets, and no public base either.

    POSIX, "Parameter Expansion": it is empty, and git or pip takes the next word, or none. Docker,
    Dockerfile reference, ARG: --build-arg reaches only what an ARG declares.
    """
    step = stage.steps[index]
    if not PUBLIC.fullmatch(stage.base) or _SETS_OTHERS.search(step.rest):
        return
    before = "\n".join(each.rest for each in stage.steps[:index] if each.name in {"ARG", "ENV"})
    for match in _VERSION.finditer(step.rest):
        name = match["branch"] or match["commit"] or match["package"]
        # What stands before FROM alone is told of elsewhere.
        known = name in outer or re.search(rf"(^|\s){name}(=|\s|$)", before, re.MULTILINE)
        here = re.search(rf"\b{name}=|\b(?:for|read)\s+{name}\b", step.rest)
        if not known and not here and not OF_BASES.fullmatch(name):
            found = f"nothing here sets {name}, and it is empty: the build ends, or takes another "
            yield f"{found}version", f"write ARG {name}=VERSION before it, in this stage"
