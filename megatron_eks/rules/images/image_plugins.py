"""Rules over where an image has NCCL's EFA plugin and its libfabric, and over what starts there."""

import posixpath
import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import Instruction, Stage, judged, stages

_PLUGIN = re.compile(r"aws-ofi-nccl")
_PREFIX = re.compile(r"--prefix[= ][\"']?(?P<path>/[\w./-]+)")
_ENTRY = re.compile(r"/[\w./-]*ofi-nccl[\w./-]*")
_DISTRIBUTION = re.compile(r"--with-libfabric=[\"']?/usr(/lib(/[\w-]+)?)?[\"']?(?=\s|$)")
_INSTALLS = re.compile(
    r"\b(?:apt-get|apt)\b[^;&|\n]*\sinstall\b[^;&|\n]*\slibfabric(1|-dev|-bin)\b"
)
# Ubuntu 20.04 to 24.04 and Debian 11 and 12: libfabric 1.6 to 1.17.
_OLD_BASE = re.compile(r"(ubuntu:?|-)(20|22|24)\.04\b|\b(bullseye|bookworm|focal|jammy|noble)\b")
_PLAIN = re.compile(r"[\w./=:,@+-]+(\s+[\w./=:,@+-]+)*")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each step of each stage; a finding comes with its line."""
    return judged(stages(listed), _of_step)


def _of_step(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    yield from _beside_the_plugin(stage, index)
    yield from _old_libfabric(stage, stage.steps[index])
    yield from _by_a_shell(stage.steps[index])


def _beside_the_plugin(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a search for NCCL's plugin beside the directory into which it is built.

    aws/aws-ofi-nccl, README, "Building": `make install` puts it into lib below --prefix.
    """
    step = stage.steps[index]
    built = [each for each in stage.steps if each.name == "RUN" and _PLUGIN.search(each.rest)]
    prefixes = {match["path"] for each in built for match in _PREFIX.finditer(each.rest)}
    if step.name != "ENV" or "LD_LIBRARY_PATH" not in step.rest or len(prefixes) != 1:
        return
    prefix = posixpath.normpath(prefixes.pop())
    named = {posixpath.normpath(each) for each in _ENTRY.findall(step.rest)}
    texts = "\n".join(each.rest for each in stage.steps if each is not step)
    if f"{prefix}/lib" in step.rest or re.search(r"ld\.so\.conf", texts):
        return
    for entry in sorted(named):
        near = posixpath.dirname(entry)
        related = prefix.startswith(f"{near}/") or near.startswith(f"{prefix}/")
        if related and entry not in texts and f"{prefix}/lib" not in texts:
            found = f"NCCL's plugin is built into {prefix}, and {entry} has nothing of it: NCCL "
            yield f"{found}takes TCP", f"write {prefix}/lib in its place"


def _old_libfabric(stage: Stage, step: Instruction) -> Iterator[tuple[str, str]]:
    """Find NCCL's plugin that is built for the libfabric of Ubuntu or Debian.

    aws-ofi-nccl v1.21, src/nccl_ofi_net.cpp: 1.22 and later; aws/aws-ofi-nccl, issue 889: one that
    is not AWS's may be built without CUDA, and knows no memory of GPUs.
    """
    installed = any(_INSTALLS.search(each.rest) for each in stage.steps if each.name == "RUN")
    builds = step.name == "RUN" and _PLUGIN.search(step.rest) and _DISTRIBUTION.search(step.rest)
    if builds and installed and _OLD_BASE.search(stage.base):
        found = "the distribution's libfabric is 1.17 or older and knows no memory of GPUs, and "
        found += "NCCL's plugin takes none before 1.22 since its v1.21"
        remedy = "run efa_installer.sh, which brings libfabric and the plugin"
        yield found, remedy


def _by_a_shell(step: Instruction) -> Iterator[tuple[str, str]]:
    """Find an entry point that a shell starts.

    Docker, Dockerfile reference, "Shell form ENTRYPOINT example": no arguments reach it, and
    signals reach the shell alone ("Build checks", JSONArgsRecommended).
    """
    rest = step.rest.strip()
    if step.name != "ENTRYPOINT" or not rest or rest.startswith(("[", "exec ", "'", '"')):
        return
    found = "a shell starts it: the args of a pod are dropped, and SIGTERM, by which Kubernetes "
    found += "asks a run to save, reaches the shell alone"
    words = ", ".join(f'"{each}"' for each in rest.split()) if _PLAIN.fullmatch(rest) else ""
    yield found, f"write [{words}]" if words else 'write a list: ["bash", "/entry.sh"]'
