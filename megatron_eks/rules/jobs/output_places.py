"""Which options name what a program writes, and on which volume of its pod that lies."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from megatron_eks.config.errors import Path
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs.rendezvous import held
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import megatron_flags, options_of, split_words
from megatron_eks.rules.values import is_placeholder, items, mapping, text
from megatron_eks.rules.workloads import Container, Pod

# Megatron-LM's options, and what programs for FSDP, Hugging Face's Trainer, Lightning, torchtitan
# and OpenMMLab call the same; with dashes for underscores.
CHECKPOINTS = frozenset(
    {
        *("--save", "--checkpoint-dir", "--checkpoints-dir", "--ckpt-dir", "--ckpt-convert-save"),
        *("--output-dir", "--out-dir", "--save-dir", "--save-folder", "--save-path"),
        *("--non-persistent-global-ckpt-dir", "--results-dir", "--work-dir", "--default-root-dir"),
        *("--job.dump-folder", "--dump-dir", "--trainer.default-local-dir"),
    }
)
LOGS = frozenset(
    {"--tensorboard-dir", "--wandb-save-dir", "--logging-dir", "--logits-save-dir", "--log-dir"}
)
CACHES = frozenset({"--data-cache-path"})
# What Hydra's words and Megatron Bridge's overrides call them; they have no dashes before them.
_WORDS = {
    "checkpoint.save": "--save",
    "exp_manager.exp_dir": "--output-dir",
    "exp_manager.explicit_log_dir": "--output-dir",
    "trainer.default_local_dir": "--save-dir",
    "trainer.default_root_dir": "--default-root-dir",
    "hydra.run.dir": "--log-dir",
    "logger.tensorboard_dir": "--tensorboard-dir",
}
# A program that only reads may call its directory so too.
_READ_TOO = frozenset({"--checkpoint-dir", "--checkpoints-dir", "--ckpt-dir"})
_OF_MEGATRON = re.compile(r"pretrain_|train_megatron")
_NEVER_WRITTEN = ("configMap", "downwardAPI", "projected", "secret", "image")
_CLAIM = "persistentVolumeClaim"
_LIVES_WITH_POD = ("emptyDir", "ephemeral")
_SHARED = re.compile(r"fsx|efs|lustre|nfs|shared|weka|gpfs|beegfs|ceph|s3|mount-s3", re.IGNORECASE)
# Disks of a node by their usual place: EKS AMIs, Deep Learning AMIs, and Linux's own directories.
_LOCAL = re.compile(r"/(mnt/(k8s-disks|nvme|local|ephemeral|disks)|opt/dlami|tmp|var|local|nvme)")


@dataclass(frozen=True)
class Output:
    """One option that names what is written."""

    path: Path
    flag: str
    """As it is written."""
    kind: str
    """With dashes."""
    value: str


@dataclass(frozen=True)
class Place:
    """The mount that decides about a directory, the one with the longest path."""

    mount: "Mapping[str, Json]"
    """Empty where nothing is mounted."""
    volume: "Mapping[str, Json]"
    """Empty where the pod does not say what is mounted."""
    claim_above: str | None
    """Where a claim is mounted above it."""

    @property
    def name(self) -> str:
        """The volume's name."""
        return str(self.mount.get("name"))

    @property
    def goes_with_pod(self) -> bool:
        """Tell whether the volume is made for the pod."""
        return any(key in self.volume for key in _LIVES_WITH_POD)

    @property
    def is_closed(self) -> bool:
        """Tell whether nobody can write there."""
        sources = [mapping(value) or {} for value in self.volume.values()]
        closed = any(source.get("readOnly") is True for source in sources)
        kept = any(key in self.volume for key in _NEVER_WRITTEN)
        return self.mount.get("readOnly") is True or closed or kept

    @property
    def node_disk(self) -> str | None:
        """The directory of the node that it is, unless that may be a shared one's mount."""
        path = text((mapping(self.volume.get("hostPath")) or {}).get("path"))
        if path is None or is_placeholder(path) or _SHARED.search(path):
            return None
        return path if self.claim_above or _LOCAL.match(path) else None


def place_of(directory: str, container: Container, pod: Pod) -> Place | None:
    """Return what a directory lies on; None where nobody can know."""
    volumes, mounts = items(pod.spec.get("volumes")), items(container.body.get("volumeMounts"))
    if volumes is None or mounts is None:
        return None
    by_name = {text((mapping(each) or {}).get("name")): mapping(each) or {} for each in volumes}
    around: list[tuple[str, dict[str, Json]]] = []
    for each in mounts:
        mount = mapping(each) or {}
        where = text(mount.get("mountPath"))
        if where is None or is_placeholder(where) or not where.startswith("/"):
            return None
        if _inside(directory, where):
            around.append((where.rstrip("/"), mount))
    around.sort(key=lambda each: len(each[0]))
    # Two at one place are refused as such.
    if len({where for where, _ in around}) < len(around):
        return None
    above = [
        where
        for where, mount in around[:-1]
        if "persistentVolumeClaim" in by_name.get(text(mount.get("name")), {})
    ]
    mount = around[-1][1] if around else {}
    volume = by_name.get(text(mount.get("name")), {})
    return Place(mount, volume, above[-1] if above else None)


def _inside(directory: str, where: str) -> bool:
    return f"{posixpath.normpath(directory)}/".startswith(f"{where.rstrip('/')}/")


def outputs_of(container: Container) -> Iterator[Output]:
    """Return the options that name directories which a training program writes to.

    Of a program that names one to write to and another one to load, the latter is only read.
    """
    megatron = list(megatron_flags(container))
    words = [(path, word) for path, line in told(container) for word in split_words(line)]
    found = [
        Output(path, flag, kind, value)
        for path, flag, named in megatron or options_of(words)
        if (kind := flag.replace("_", "-")) in CHECKPOINTS | LOGS | CACHES
        and (value := directory_in(container, named)).startswith("/")
        and not is_placeholder(value)
    ]
    found += _hydra(words)
    written = any(each.kind in CHECKPOINTS - _READ_TOO for each in found)
    for each in found:
        # `--save` may mean anything in another program.
        meant = each.kind != "--save" or megatron or _OF_MEGATRON.search(container.line)
        if (meant or "." in each.flag) and not (written and each.kind in _READ_TOO):
            yield each


def directory_in(container: Container, value: str) -> str:
    """Return a directory; what a variable surely holds, where it begins with one."""
    if not value.startswith("$"):
        return value
    first, slash, rest = value.partition("/")
    return held(container, first) + slash + rest


def _hydra(words: list[tuple[Path, str]]) -> Iterator[Output]:
    for path, word in words:
        key, _, value = word.partition("=")
        kind = _WORDS.get(key.lstrip("+"))
        if kind is not None and value.startswith("/") and not is_placeholder(value):
            yield Output(path, key, kind, value)


def mounted(container: Container) -> str:
    """Name the directories on which something is mounted."""
    mounts = items(container.body.get("volumeMounts")) or []
    paths = sorted(str((mapping(each) or {}).get("mountPath")) for each in mounts)
    return ", ".join(paths) or "none"


def writable(container: Container, pod: Pod, *, claims: bool | None) -> str:
    """Name the mounts to which a container may write, on claims or on others; empty for none.

    Memory is the last resort: what is written there counts as the container's own.
    """
    found: list[str] = []
    in_memory: list[str] = []
    for each in items(container.body.get("volumeMounts")) or []:
        path = text((mapping(each) or {}).get("mountPath")) or ""
        place = place_of(path, container, pod) if path.startswith("/") else None
        if place is None or place.is_closed or "subPathExpr" in place.mount:
            continue
        memory = (mapping(place.volume.get("emptyDir")) or {}).get("medium") == "Memory"
        if claims in {None, _CLAIM in place.volume}:
            (in_memory if memory else found).append(path)
    return ", ".join(sorted(found or in_memory))
