"""Rules over directories that containers or pods are to share, and that each has for itself."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.mounted_paths import inside, kept, mounts, paths
from megatron_eks.rules.jobs.output_places import CHECKPOINTS, Output, Place, outputs_of, place_of
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import megatron_flags, options_of, split_words
from megatron_eks.rules.values import items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_OF_A_POD = re.compile(
    r"\$[({]?(HOSTNAME|POD_NAME|POD_IP|RANK|NODE_RANK|PET_NODE_RANK|GROUP_RANK|LOCAL_RANK"
    r"|JOB_COMPLETION_INDEX|VC_TASK_INDEX)\b|\$\(hostname\)"
)
_FIELDS = frozenset({"metadata.name", "metadata.uid", "status.podIP", "spec.nodeName"})
_READ_TOO = frozenset({"--checkpoint-dir", "--checkpoints-dir", "--ckpt-dir"})
# Directories that an image may well have itself.
_OF_IMAGES = ("/bin", "/dev", "/etc", "/home", "/lib", "/proc", "/root", "/sys", "/tmp", "/usr")  # noqa: S108 -- inside a container
_WRITES = re.compile(
    r"\b(aws\s+s3\s+(sync|cp|mv)|s5cmd|wget|curl|git\s+clone|(huggingface-cli|hf)\s+download"
    r"|rsync|rclone|gsutil|tar|unzip|mkdir|chown|chmod|cp|mv|tee|touch)\b|>"
)


def checkpoints(manifest: Manifest) -> Iterator[Finding]:
    """Warn of ranks of one run that each save into a directory of their own pod.

    PyTorch, torch.distributed.checkpoint, and Megatron-LM, megatron/training/checkpointing.py: all
    ranks write parts of one checkpoint into one directory, and the first one its metadata.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            if container.is_init or not is_one_of_several(manifest, container):
                continue
            for output in outputs_of(container):
                place = place_of(output.value, container, pod)
                if output.kind in CHECKPOINTS and place is not None and _own_part(place, container):
                    how = f"{shown(str(place.mount.get('subPathExpr')))} of the claim"
                    yield _apart(output, how)
                    break
            for path, flag, value in _options(container):
                match = _OF_A_POD.search(value)
                kind = flag.replace("_", "-")
                if kind in CHECKPOINTS - _READ_TOO and match is not None and value.startswith("/"):
                    yield _apart(Output(path, flag, kind, value), match[0])


def _apart(output: Output, how: str) -> Finding:
    found = f"{output.flag} {shown(output.value)} is another directory in each pod, by {how}: no "
    found += "one has a whole checkpoint"
    remedy = "write one directory for all ranks"
    return Finding(Code.CHECKPOINTS_LOST, output.path, found, remedy, Level.WARNING)


def _options(container: Container) -> "list[tuple[tuple[str | int, ...], str, str]]":
    words = [(path, word) for path, line in told(container) for word in split_words(line)]
    return list(megatron_flags(container)) or list(options_of(words))


def _own_part(place: Place, container: Container) -> bool:
    """Tell whether a mount shows each pod another part of its claim."""
    expression = text(place.mount.get("subPathExpr")) or ""
    own = {"HOSTNAME"}
    for value in items(container.body.get("env")) or []:
        entry = mapping(value) or {}
        source = mapping((mapping(entry.get("valueFrom")) or {}).get("fieldRef")) or {}
        field = text(source.get("fieldPath")) or ""
        if field in _FIELDS or "job-completion-index" in field:
            own.add(text(entry.get("name")) or "")
    return any(f"$({name})" in expression for name in own)


def is_one_of_several(manifest: Manifest, container: Container) -> bool:
    """Tell whether a pod's ranks belong together with those of others."""
    flags = {name: value for _, name, value in launcher_flags(container)}
    if not container.has_launcher or "standalone" in flags:
        return False
    if manifest.pytorch_replicas is not None:
        return sum(1 if pod.replicas is None else pod.replicas for pod in manifest.pods) > 1
    return (number(flags.get("nnodes")) or 1) > 1


def before_the_start(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an init container that prepares a directory which only others have mounted.

    Kubernetes, "Init Containers": each has its own file system, and shares with the others what
    both mount.
    """
    for pod in manifest.pods:
        stay = kept(pod)
        others = [
            (place, name, each.name)
            for each in pod.containers
            if not each.is_init
            for place, name in mounts(each)
            if name in stay and not place.startswith(_OF_IMAGES)
        ]
        for container in pod.containers:
            if not container.is_init or not _WRITES.search(container.line):
                continue
            own = [place for place, _ in mounts(container)]
            # What it shares under another path may be copied from the image's own.
            shared = {name for _, name in mounts(container)}
            for path, word in paths(container):
                at = next((each for each in others if inside(word, each[0])), None)
                if at is None or at[1] in shared:
                    continue
                if not any(inside(word, each) for each in own):
                    found = f"{shown(word)} is of this container alone: {at[0]} is mounted in "
                    found += f"{at[2] or 'the other one'}, and not here"
                    remedy = f"mount the same volume at {at[0]} here too"
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy)
                    break
