"""Rule over variables in a launcher's options that neither the pod nor its operator sets."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.rendezvous import launcher_flags
from megatron_eks.rules.shell_words import FROM_OTHERS, IN_PODS
from megatron_eks.rules.values import is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_NAMED = re.compile(r"\$(?:(?P<name>[A-Z][A-Z0-9_]*)|\{(?P<braced>[A-Z][A-Z0-9_]*)\})")
_SOURCED = re.compile(r"(^|[\s;&])(source|\.|eval)\s|\bread\b|<<")
_OF_RANKS = frozenset({"nnodes", "nproc-per-node", "node-rank", "master-addr", "rdzv-endpoint"})
# What images of schedulers bring, or a rule of its own judges.
_ELSEWHERE = re.compile(r"SLURM_|OMPI_|SM_|GPU|NVIDIA|CUDA|HOME$|PWD$|RDZV_|NUM_GPUS")


def values(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a launcher's option that is empty, or stays as it is written.

    POSIX, "Shell Command Language", 2.6.2: an unset variable is an empty text; Kubernetes, "Define
    a Command and Arguments for a Container": without a shell nobody puts anything in.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            told = container.is_init or not container.has_launcher or container.body.get("envFrom")
            if told or _SOURCED.search(container.line) or _is_template(manifest, pod, container):
                continue
            known = {each.name for each in container.variables}
            for path, flag, value in launcher_flags(container):
                match = _NAMED.search(value) if flag in _OF_RANKS else None
                name = (match["name"] or match["braced"]) if match else ""
                if not name or name in known or re.search(rf"\b{name}=", container.line):
                    continue
                if IN_PODS.fullmatch(name) or FROM_OTHERS.match(name) or _ELSEWHERE.search(name):
                    continue
                found = f"--{flag} {shown(value)}: nothing here sets {name}"
                remedy = f"add {name} to env, unless the image sets it, or write its value"
                yield Finding(Code.NOT_EXPANDED, path, found, remedy, Level.WARNING)


def _is_template(manifest: Manifest, pod: Pod, container: Container) -> bool:
    """Tell whether an engine fills in other parts of the object, and so perhaps this one."""
    selector = mapping(pod.spec.get("nodeSelector")) or {}
    parts = (manifest.name, container.body.get("image"), *selector.values())
    written = [text(each) or "" for each in parts]
    return any(map(is_placeholder, written)) or "$" in str(container.body.get("resources"))
