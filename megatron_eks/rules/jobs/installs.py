"""Rule over packages that a script installs where nothing can be written."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.shell_scripts import commands_of, scripts_of
from megatron_eks.rules.objects.pod_needs import has_closed_root
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Container, Manifest

_INSTALLS = re.compile(r"\s*(python[0-9.]*\s+-m\s+)?pip[0-9.]*\s+install\s(?P<rest>.*)", re.DOTALL)
_ELSEWHERE = re.compile(r"(^|\s)(--target|-t|--user|--prefix|--root|--dry-run|--python)\b")
# Environments of their own, and other homes.
_OTHER = re.compile(r"\bvenv\b|virtualenv|conda|\bsource\s|\bHOME=|\bPIP_|PYTHONUSERBASE|activate")
_VARIABLES = re.compile(r"PIP_\w+|PYTHONUSERBASE|VIRTUAL_ENV|CONDA_\w+|HOME|PATH")
_NO_PLACE = re.compile(r"/(dev|tmp|fsx|data|datasets?|shared|checkpoints?|mnt|efs|s3|etc)(/.*)?")


def on_closed_roots(manifest: Manifest) -> Iterator[Finding]:
    """Warn of pip in a container whose root is closed for writing.

    Kubernetes API reference, SecurityContext.readOnlyRootFilesystem; pip, "pip install": packages
    go to the interpreter's site-packages, or to the user's home: "[Errno 30] Read-only file
    system", unless all of them are there already.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if not has_closed_root(container) or _has_a_place(container):
                continue
            for path, script in scripts_of(container):
                if _OTHER.search(script):
                    continue
                installed = (_INSTALLS.match(each) for each in commands_of(script))
                if any(each and not _ELSEWHERE.search(each["rest"]) for each in installed):
                    found = "pip install on a root that is closed for writing: it ends, unless the "
                    found += "image has all of it already"
                    remedy = "install it in the image, or with --target on a mount that PYTHONPATH "
                    remedy += "names"
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy, Level.WARNING)


def _has_a_place(container: Container) -> bool:
    """Tell whether packages may go to a mount, as far as its place or a variable says."""
    named = any(_VARIABLES.fullmatch(each.name) for each in container.variables)
    mounts = items(container.body.get("volumeMounts")) or []
    places = [text((mapping(each) or {}).get("mountPath")) or "" for each in mounts]
    return named or not all(_NO_PLACE.fullmatch(each) for each in places)
