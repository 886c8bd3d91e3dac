"""Rules over programs that a Dockerfile installs and builds: EFA's, NCCL's plugin and tests."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.image_stages import Instruction, ends_step

_INSTALLER = re.compile(r"(?:^|[\s/])efa_installer\.sh\b(?P<options>[^&;|\n]*)")
_WITHOUT_MODULE = re.compile(r"(^|\s)(--skip-kmod|-[a-z]*k[a-z]*|--help|--uninstall|-u)(\s|$)|\$")
# README of the installer, "Installer Usage", and the long options that AWS's own images give it.
_OPTIONS = (
    *("--build-ngc", "--debug-packages", "--disable-ngc", "--enable-gdr", "--help", "--minimal"),
    *("--mpi", "--no-verify", "--skip-kmod", "--skip-limit-conf", "--skip-mpi", "--skip-plugin"),
    "--skip-rdma-core",
    *("--uninstall", "--version", "--yes"),
)
_NEARLY = 0.88
_CONFIGURE = re.compile(r"(?:^|[;&|\s])\./configure\b")
_LIBFABRIC = re.compile(r"--with-libfabric|PKG_CONFIG_PATH|C_INCLUDE_PATH|CPATH|CPPFLAGS|CFLAGS")
_WRONG_LIBFABRIC = re.compile(
    r"--with-libfabric[= ](?P<place>/opt/amazon/(?!efa/?(?:\s|$))[\w/-]+)"
)
_BELOW_LIBFABRIC = re.compile(
    r"--with-libfabric[= ](?P<place>/opt/amazon/efa/(?:lib|lib64|include|bin))/?(?=\s|$)"
)
_OTHER_WAYS = re.compile(r"PKG_CONFIG_PATH|C_INCLUDE_PATH|CPATH|CPPFLAGS|CFLAGS|libfabric-dev")
_TESTS = "nccl-tests"
_MAKES = re.compile(r"(?:^|[;&|\s])make\b(?P<words>[^;&|\n]*)")
_WITH_MPI = re.compile(r"\bMPI\s*=\s*[\"']?1|\$|-f\s|MPI_HOME")
_WITH_MPI_SET = re.compile(r"\b(export|ENV)\s+MPI=1\b")
_MPI_THERE = re.compile(r"efa_installer|openmpi|mpirun|/hpcx|nvcr\.io/nvidia/(pytorch|nemo):")


def of_steps(name: str, rest: str, content: str) -> Iterator[Finding]:
    """Judge what one instruction installs or builds."""
    if name != "RUN":
        return
    yield from _module(rest)
    yield from _plugin(rest, content)
    yield from _tests(rest, content)


def _module(rest: str) -> Iterator[Finding]:
    """Warn of EFA's installer that is not told to leave the kernel's module out.

    AWS, awsome-distributed-training, 0.nvcr-pytorch-aws.dockerfile: --skip-kmod and
    --skip-limit-conf are for images; a container has no kernel of its own to build a module for.
    """
    for match in _INSTALLER.finditer(rest):
        options = match["options"]
        unknown = _unknown_option(options)
        if unknown is not None:
            found = f"efa_installer.sh has no option {unknown[0]}"
            remedy = f"did you mean {unknown[1]}?"
            yield Finding(Code.IMAGE_BUILD, ("RUN",), found, remedy, Level.WARNING)
            continue
        started = re.search(r"(^|\s)(-[a-z]*y[a-z]*|--yes)(\s|$)", options)
        if started and not _WITHOUT_MODULE.search(options):
            found = "efa_installer.sh installs a kernel module too, and an image has no kernel: "
            found += "the build fails"
            remedy = "add --skip-kmod --skip-limit-conf --no-verify"
            ends = ends_step(Instruction(0, "RUN", rest), match.end())
            level = Level.ERROR if ends else Level.WARNING
            yield Finding(Code.IMAGE_BUILD, ("RUN",), found, remedy, level)


def _unknown_option(options: str) -> tuple[str, str] | None:
    for word in options.split():
        name = word.partition("=")[0]
        close = get_close_matches(name, _OPTIONS, 1, _NEARLY) if name.startswith("--") else []
        if close and name not in _OPTIONS:
            return name, close[0]
    return None


def _plugin(rest: str, content: str) -> Iterator[Finding]:
    """Warn of NCCL's plugin that is built without the place of EFA's libfabric.

    aws/aws-ofi-nccl, README, "Building": --with-libfabric names where it is; the EFA installer
    puts it into /opt/amazon/efa, where configure does not look.
    """
    match = _CONFIGURE.search(rest)
    there = _LIBFABRIC.search(content)
    wrong = _WRONG_LIBFABRIC.search(rest) if "aws-ofi-nccl" in rest and match else None
    below = _BELOW_LIBFABRIC.search(rest) if wrong else None
    if below and not _OTHER_WAYS.search(content):
        found = f"{below['place']} is below the directory that configure wants: it looks for "
        found += f"rdma/fabric.h in {below['place']}/include, and ends"
        remedy = "write --with-libfabric=/opt/amazon/efa"
        ends = ends_step(Instruction(0, "RUN", rest), below.end())
        level = Level.ERROR if ends else Level.WARNING
        yield Finding(Code.IMAGE_BUILD, ("RUN",), found, remedy, level)
        return
    if wrong and "efa_installer" in content and content.count(wrong["place"]) == 1:
        found = f"{wrong['place']}, where the EFA installer puts no libfabric: configure ends"
        yield Finding(
            Code.IMAGE_BUILD,
            ("RUN",),
            found,
            "write --with-libfabric=/opt/amazon/efa",
            Level.WARNING,
        )
    if "aws-ofi-nccl" in rest and match and "efa_installer" in content and not there:
        found = "configure does not find libfabric, which the EFA installer puts into "
        found += "/opt/amazon/efa"
        remedy = "add --with-libfabric=/opt/amazon/efa, or use the plugin that the installer brings"
        yield Finding(Code.IMAGE_BUILD, ("RUN",), found, remedy, Level.WARNING)


def _tests(rest: str, content: str) -> Iterator[Finding]:
    """Warn of NCCL's tests without MPI in an image that has it.

    NVIDIA/nccl-tests, README and issue 27: without MPI=1 each process that mpirun starts is rank 0
    of a test of its own, so that the network between nodes is not measured.
    """
    if _TESTS not in rest or not _MPI_THERE.search(content):
        return
    match = _MAKES.search(rest, rest.index(_TESTS))
    if match and not _WITH_MPI.search(match["words"]) and not _WITH_MPI_SET.search(content):
        found = "nccl-tests without MPI: each process that mpirun starts tests for itself, "
        found += "and none over the network"
        remedy = "write make MPI=1 MPI_HOME=/opt/amazon/openmpi"
        yield Finding(Code.IMAGE_BUILD, ("RUN",), found, remedy, Level.WARNING)
