"""Rule over checkpoints below the working directory of a container that mounts nothing."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.output_places import CHECKPOINTS
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import megatron_words, options_of, split_words
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

_RELATIVE = re.compile(r"(\./)?[A-Za-z0-9_][\w./-]*|\.")
# Of a program that may only read what is there; and what may mean anything in another one.
_OTHERS = frozenset({"--checkpoint-dir", "--checkpoints-dir", "--ckpt-dir", "--save"})
_GOES_WITH_POD = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "projected", "secret"}
)
_CARRIED = re.compile(
    r"\bs3\b|\brclone\b|\bs5cmd\b|\brsync\b|\bgsutil\b|push[_-]to[_-]hub|\bcp\b|\bmv\b|\bln\b"
    r"|\bcd\b|boto3|upload",
    re.IGNORECASE,
)
_OF_TRAINING = re.compile(r"train|tune|fsdp|sft|run_clm|--per_device", re.IGNORECASE)


def checkpoints(manifest: Manifest) -> Iterator[Finding]:
    """Warn of checkpoints in a container's own directory, where the pod keeps nothing at all.

    Kubernetes, "Volumes": files of a container are lost with it. Whatever the image's working
    directory is, nothing is mounted there.
    """
    for pod in manifest.pods if manifest.is_job else ():
        # Another container may carry away what it shares.
        carried = any(_CARRIED.search(each.line) for each in pod.containers)
        carried = carried or sum(not each.is_init for each in pod.containers) > 1
        for container in pod.containers if not carried else ():
            if container.is_init or not container.names(GPU) or _keeps(container, pod):
                continue
            if megatron_words(container) or not _OF_TRAINING.search(container.line):
                continue
            words = [(path, word) for path, line in told(container) for word in split_words(line)]
            for path, flag, value in options_of(words):
                kind = flag.replace("_", "-")
                named = kind in CHECKPOINTS - _OTHERS and not is_placeholder(value)
                if named and _RELATIVE.fullmatch(value):
                    found = f"{flag} {shown(value)} is in the pod, which mounts no volume that "
                    found += "stays, and goes with it"
                    remedy = "mount the shared file system's claim, and write below it"
                    yield Finding(Code.CHECKPOINTS_LOST, path, found, remedy, Level.WARNING)
                    break


def _keeps(container: Container, pod: Pod) -> bool:
    """Tell whether a container mounts what may outlive it, or what nobody can know."""
    volumes, mounts = (
        items(each) or [] for each in (pod.spec.get("volumes"), container.body.get("volumeMounts"))
    )
    bodies = [mapping(each) or {} for each in volumes]
    gone = {text(each.get("name")) for each in bodies if not _GOES_WITH_POD.isdisjoint(each)}
    # A pod that mounts nothing at all may get its volumes from elsewhere.
    return not mounts or any(text((mapping(each) or {}).get("name")) not in gone for each in mounts)
