"""Rules over what a Dockerfile installs beside EFA, what it copies, and what it leaves behind."""

import posixpath
import re
from collections.abc import Iterator
from functools import partial

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.image_stages import Instruction, Stage, judged, refused, stages
from megatron_eks.rules.images.image_python import WITHOUT_NVCC, compiler_may_be_there
from megatron_eks.rules.values import shown

_APT = re.compile(r"\b(?:apt-get|apt)\b[^;&|\n]*\sinstall\b(?P<words>[^;&|\n]*)")
_DRIVER = re.compile(
    r"(?<!\S)(nvidia-driver-\d+\S*|nvidia-utils-\d+\S*|libnvidia-compute-\d+\S*|cuda-drivers\S*)"
)
_LIBFABRIC = re.compile(r"(?<!\S)(libfabric1|libfabric-(?:dev|bin))(?=[=\s]|$)")
_STARTS_EFA = re.compile(r"efa_installer\.sh\b(?P<options>[^;&|\n]*)")
_CHOOSES = re.compile(r"\s(-[a-z]*[gkdnlm][a-z]*|--(skip-\S+|enable-gdr|no-verify|minimal))\b")
_ANSWERS = re.compile(r"\s(-[a-z]*y[a-z]*|--yes|--help|--version|--uninstall)(\s|$)|\$")
_TESTS = re.compile(r"nccl-tests[\s\S]*(?:^|[;&|\s])make\b|(?:^|[;&|\s])make\b[^;&|\n]*nccl-tests")
_LIST = re.compile(
    r"(?:pip3?|python3? -m pip|uv pip)\s+install\b[^;&|\n]*?\s(?:-r|--requirement)[ =]?"
    r"(?P<file>[\w.-]+(?:/[\w.-]+)*\.txt)(?=\s|$|[;&|])"
)
_BRINGS_FILES = re.compile(
    r"\b(git|curl|wget|tar|unzip|cp|mv|cd|echo|cat|printf|tee)\b|--mount|>|<<"
)
# Bases of which none has EFA; AWS's own, and NVIDIA's images of frameworks, bring it.
_WITHOUT_EFA = re.compile(
    r"(docker\.io/)?((nvcr\.io/)?nvidia/cuda|pytorch/pytorch|(library/)?(ubuntu|debian|python))"
    r"(:.*)?"
)
_MAY_BRING_EFA = re.compile(
    r"/opt/amazon/efa|/opt/amazon(/?[\s*]|/?$)|(^|\s)/(opt/?)?(\*|\s|$)|libfabric|\.sh\b|--mount"
)
_OF_EFA = re.compile(r"/opt/amazon(?:/(?:efa|ofi-nccl))?\b")
_LIBRARIES = re.compile(r"libefa|ibverbs|rdma|/usr/lib|efa_installer|\.sh\b")

_MPI_HOME = re.compile(r"\bMPI_HOME=(?P<place>/[\w./-]+)")
_OTHER_MPI = re.compile(r"--from=|mpich|libopenmpi|openmpi-bin|\bompi\b|/opt/amazon(\s|/\s|$)")
_OF_MPI = ("/opt/amazon/openmpi", "/opt/amazon/openmpi5")

# Files with keys and tokens, by the names that their programs give them; *.pub is for all.
_CREDENTIALS = re.compile(
    r"(^|/)(\.aws(/(credentials|\*)?)?|\.ssh/?|id_(rsa|ed25519|ecdsa)|\.netrc|\.git-credentials"
    r"|\.kube(/config)?/?|kubeconfig|\.env|\.huggingface/token|\.cache/huggingface/token)$"
)


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each step of each stage; a finding comes with its line."""
    for step in listed:
        for finding in _credentials(step):
            yield finding, step.line
    built = stages(listed)
    yield from judged(built, partial(_of_step, built))
    yield from judged(built, _without_compiler, refused)
    yield from judged(built, _skipped_mpi, refused)


def _of_step(built: list[Stage], stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    step = stage.steps[index]
    yield from _left_behind(stage, index, built)
    if step.name == "RUN":
        yield from _driver(step)
        yield from _other_libfabric(stage, index)
        yield from _asks(step)
        yield from _without_mpi(stage, index)
        yield from _not_yet_copied(stage, index)


def _credentials(step: Instruction) -> Iterator[Finding]:
    """Yield credentials that a step copies out of the directory of the build.

    Docker, "Build secrets": a mount is there for its step alone, and a copy stays in its layer.
    """
    # What stands in a heredoc is written here, and copied from nowhere.
    line = step.rest.partition("\n")[0]
    words = [each.strip("[]\"',") for each in line.split() if not each.startswith("<<")]
    if step.name not in {"COPY", "ADD"} or any(each.startswith("--from") for each in words):
        return
    for source in [each for each in words if not each.startswith("--")][:-1]:
        if _CREDENTIALS.search(source):
            found = f"{shown(source)} stays in the image, and everybody who pulls it can read it"
            remedy = (
                "use RUN --mount=type=secret where the build needs it, and a Kubernetes Secret "
            )
            remedy += "or Pod Identity where the job does"
            path = (step.name,)
            yield Finding(Code.IMAGE_SECRET, path, found, remedy, Level.WARNING)


def _driver(step: Instruction) -> Iterator[tuple[str, str]]:
    """Find libraries of a driver, which come from the node into every container.

    rocker-org/rocker-versioned2, issue 342: a package that brings them into the image ends in
    "Failed to initialize NVML: Driver/library version mismatch".
    """
    for match in _APT.finditer(step.rest):
        driver = _DRIVER.search(match["words"])
        if driver:
            found = f"{driver[0]} is of a driver, which each container gets from its node: another "
            found += "version in the image ends in Driver/library version mismatch"
            yield found, "leave it out: the node's AMI has the driver"


def _other_libfabric(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find the distribution's libfabric beside the one of EFA's installer.

    aws/aws-ofi-nccl, issue 241: libfabric-bin after the installer, and NCCL's plugin that was built
    for the installer's libfabric ran with Ubuntu's older one.
    """
    rest = stage.steps[index].rest
    for match in _APT.finditer(rest):
        asked = _LIBFABRIC.search(match["words"])
        if asked and _STARTS_EFA.search(f"{stage.before(index)}\n{rest[: match.start()]}"):
            found = f"{asked[0]} brings the distribution's older libfabric beside EFA's own, and "
            found += "NCCL's plugin may load it"
            yield found, "leave it out: EFA's installer puts libfabric into /opt/amazon/efa"


def _asks(step: Instruction) -> Iterator[tuple[str, str]]:
    """Find EFA's installer that waits for an answer.

    EC2 User Guide, "Get started with EFA and NCCL", step 3: ./efa_installer.sh -y.
    """
    for match in _STARTS_EFA.finditer(step.rest):
        piped = re.search(r"\byes\s*\|[^;&\n]*$", step.rest[: match.start()])
        if (
            _CHOOSES.search(match["options"])
            and not _ANSWERS.search(match["options"])
            and not piped
        ):
            yield "efa_installer.sh asks whether to go on, and nobody answers", "add -y"


def _without_mpi(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find NCCL's tests that look for MPI where neither the base nor a step puts it.

    NVIDIA/nccl-tests, README, "Build", MPI_HOME; awslabs/awsome-distributed-training, issue 74:
    "mpi.h: No such file or directory".
    """
    rest = stage.steps[index].rest
    match = _MPI_HOME.search(rest)
    ready = _STARTS_EFA.search(stage.before(index)) and _WITHOUT_EFA.fullmatch(stage.base)
    if not match or not ready or "nccl-tests" not in rest:
        return
    place = match["place"].rstrip("/")
    if place not in _OF_MPI and place not in stage.before(index):
        found = f"MPI_HOME is {place}, and EFA's installer puts Open MPI into {_OF_MPI[0]}: no "
        yield f"{found}mpi.h is found", f"write MPI_HOME={_OF_MPI[0]}"


def _skipped_mpi(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find NCCL's tests that look for the Open MPI which EFA's installer was told to leave out.

    README of the EFA installer, --skip-mpi; awslabs/awsome-distributed-training, issue 74:
    "mpi.h: No such file or directory".
    """
    step = stage.steps[index]
    match = _MPI_HOME.search(step.rest) if step.name == "RUN" else None
    if not match or "nccl-tests" not in step.rest or not _WITHOUT_EFA.fullmatch(stage.base):
        return
    place = match["place"].rstrip("/")
    steps = [*stage.steps[:index], Instruction(step.line, "RUN", step.rest[: match.start()])]
    runs = [one for each in steps for one in _STARTS_EFA.finditer(each.rest)]
    skipped = runs and all(re.search(r"\s--skip-mpi\b", one["options"]) for one in runs)
    texts = [each.rest for each in steps if each.name not in {"ENV", "ARG"}]
    brought = any(place in each or _OTHER_MPI.search(each) for each in texts)
    if place in _OF_MPI and skipped and not brought:
        found = f"{place} is not there: efa_installer.sh was told --skip-mpi, and nccl-tests end "
        yield f"{found}with mpi.h: No such file", "leave --skip-mpi out"


def _without_compiler(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find NCCL's tests that are compiled where nvcc is not.

    NVIDIA/nccl-tests, README, "Build"; NVIDIA, container images of CUDA: devel alone has nvcc.
    """
    step, before = stage.steps[index], stage.before(index)
    match = _TESTS.search(step.rest) if step.name == "RUN" else None
    ready = match and compiler_may_be_there(f"{before}\n{step.rest[: match.start()]}")
    if match and not ready and WITHOUT_NVCC.fullmatch(stage.base):
        found = f"nccl-tests is compiled by nvcc, and {stage.base} has none: the build fails"
        yield found, "build it on the -devel- image, in a stage of its own if it is to be small"


def _not_yet_copied(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a list of packages that pip reads before a later step brings it.

    Docker, Dockerfile reference, "Format": instructions run in the order in which they stand.
    """
    rest, before = stage.steps[index].rest, stage.steps[:index]
    match = _LIST.search(rest)
    brought = any(each.name in {"COPY", "ADD", "VOLUME", "ONBUILD"} for each in before)
    if match is None or brought or _BRINGS_FILES.search(rest[: match.start()]):
        return
    name = posixpath.basename(match["file"])
    if _may_be_there(before, name):
        return
    for each in stage.steps[index + 1 :]:
        words = each.rest.split()
        named = any(posixpath.basename(word.rstrip("/")) == name for word in words[:-1])
        if each.name in {"COPY", "ADD"} and "--from" not in each.rest and named:
            found = (
                f"{match['file']} is not in the image yet: {each.name} brings it in a later step"
            )
            yield found, f"write {each.name} {each.rest} before this step"
            return


def _may_be_there(before: tuple[Instruction, ...], name: str) -> bool:
    """Tell whether a step has made the file, or cloned a repository into which WORKDIR went."""
    cloned = False
    for each in before:
        if name in each.rest or re.search(r"git clone\b[^;&|\n]*\s\.(/|\s|$)", each.rest):
            return True
        if each.name == "WORKDIR" and cloned:
            return True
        cloned = cloned or re.search(r"git clone|\btar\b|\bunzip\b", each.rest) is not None
    return False


def _left_behind(stage: Stage, index: int, built: list[Stage]) -> Iterator[tuple[str, str]]:
    """Find EFA's libraries that another stage has, and this one names or takes without their own.

    PrimeIntellect-ai/prime-rl, pull request 3454: /opt/amazon alone leaves the installer's
    rdma-core behind, and NCCL's plugin ends with "version 'EFA_1.4' not found".
    """
    step = stage.steps[index]
    if not _WITHOUT_EFA.fullmatch(stage.base) or not _OF_EFA.search(step.rest):
        return
    texts = [each.rest for each in stage.steps]
    elsewhere = any(
        _STARTS_EFA.search(one.rest) for each in built if each is not stage for one in each.steps
    )
    if not elsewhere or any(_STARTS_EFA.search(each) for each in texts):
        return
    copied = [each for each in stage.steps if each.name == "COPY" and "--from=" in each.rest]
    taken = [each for each in copied if _OF_EFA.search(each.rest)]
    if taken and taken[0] is step:
        if not any(_LIBRARIES.search(each) for each in texts):
            found = "/opt/amazon without the rdma-core that EFA's installer put into /usr: NCCL's "
            found += "plugin ends with version 'EFA_1.4' not found, and NCCL takes TCP"
            yield found, "run efa_installer.sh in this stage"
    elif step.name == "ENV" and taken and _names_efa(step) and _without_efa(stage):
        found = "/opt/amazon/efa/lib is not in this stage: no step copies EFA's libfabric, the "
        found += "plugin does not load, and NCCL takes TCP"
        yield found, f"write {_first_copy(taken[0])} too"
    elif step.name == "ENV" and "LD_LIBRARY_PATH" in step.rest and not taken:
        whole = any(re.search(r"--from=\S+\s+(/|/opt/?)\s", each.rest) for each in copied)
        if not whole and not any(_LIBRARIES.search(each) for each in texts):
            found = "EFA is installed in another stage, and nothing of it is in this one: NCCL "
            found += "takes TCP, without an error"
            yield found, "run efa_installer.sh in this stage"


def _names_efa(step: Instruction) -> bool:
    return re.search(r"LD_LIBRARY_PATH=\S*/opt/amazon/efa/lib", step.rest) is not None


def _without_efa(stage: Stage) -> bool:
    """Tell whether no step of a stage can have put libfabric into /opt/amazon/efa."""
    for each in stage.steps:
        if each.name in {"ARG", "ENV"}:
            continue
        if _MAY_BRING_EFA.search(each.rest):
            return False
        if each.name in {"COPY", "ADD"} and ("$" in each.rest or "[" in each.rest):
            return False
    return True


def _first_copy(step: Instruction) -> str:
    """Return the copy of EFA's own directory from where another of its directories comes."""
    source = re.search(r"--from=\S+", step.rest)
    return f"COPY {source[0] if source else ''} /opt/amazon/efa /opt/amazon/efa"
