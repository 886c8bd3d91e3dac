"""Rule over variables by which an image finds its programs and libraries."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.values import is_placeholder, shown
from megatron_eks.rules.workloads import EFA, GPU, Manifest

_LIBRARIES = "LD_LIBRARY_PATH"
_PROGRAMS = "PATH"
_ITSELF = re.compile(r"\$\(?\{?(?P<name>PATH|LD_LIBRARY_PATH)\b")
# Where the EFA installer and NVIDIA's images keep theirs.
_OF_EFA = re.compile(r"/opt/amazon/(efa|ofi-nccl)|aws-ofi-nccl")
_OF_SYSTEM = re.compile(r"(^|:)/(usr/)?bin(:|$)")


def _is_enough(value: str) -> bool:
    """Tell whether a search path has what the image's surely had: it works by the rest of it."""
    if _OF_SYSTEM.search(value):
        return True
    return bool(_OF_EFA.search(value) and "nvidia" in value)


def overwritten(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a search path that takes the image's place, and refuse one that names itself.

    Kubernetes, "Define Dependent Environment Variables": a value knows the variables of the
    manifest alone, so $(PATH) and $PATH stay as they are written; docker run(1), --env: it takes
    the place of the image's ENV. NVIDIA's images and aws-ofi-nccl's are found by LD_LIBRARY_PATH.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for each in container.variables:
                value = each.value
                if each.name not in {_LIBRARIES, _PROGRAMS} or not value:
                    continue
                path = (*container.path, "env", each.index)
                itself = _ITSELF.search(value)
                earlier = {one.name for one in container.variables[: each.index]}
                if itself is not None and itself["name"] not in earlier:
                    found = f"{shown(value)}: Kubernetes does not know the image's {itself['name']}"
                    found += ", so it is lost"
                    remedy = "write every directory out, or set it in the image"
                    level = Level.WARNING if _is_enough(value) else Level.ERROR
                    yield Finding(Code.REFUSED_VARIABLE, path, found, remedy, level)
                elif is_placeholder(value) or itself is not None:
                    continue
                elif each.name == _PROGRAMS and not _OF_SYSTEM.search(value):
                    found = f"{shown(value)} takes the place of the image's: no program is found"
                    remedy = "remove it, or set it in the image"
                    yield Finding(Code.REFUSED_VARIABLE, path, found, remedy)
                elif each.name == _LIBRARIES and container.names(GPU):
                    whole = _OF_EFA.search(value) if container.names(EFA) else "nvidia" in value
                    if not whole:
                        what = "EFA's and NCCL's" if container.names(EFA) else "NVIDIA's"
                        found = f"{_LIBRARIES} takes the place of the image's, by which {what} "
                        found += "are found"
                        remedy = f"remove {_LIBRARIES} here, or set it in the image"
                        code = Code.VARIABLE_ADVISED_AGAINST
                        yield Finding(code, path, found, remedy, Level.WARNING)
