"""The file tree that a container sees: this machine's, read-only, with the pod's mounts in it."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path, PurePath

from megatron_eks.local.kubernetes.kubelet import linux

# A container has its own of these, or none.
_OWN = frozenset({"dev", "proc", "sys", "tmp", "run", "mnt", "media", "boot", "lost+found"})
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
# What a container runtime gives where the pod says nothing.
_SHARED = "/dev/shm"  # noqa: S108 -- the container's own
_SHARED_MEMORY = "size=64m,mode=1777"


@dataclass(frozen=True)
class Mount:
    """A file or directory of this machine at a path inside a container."""

    source: str
    target: str
    read_only: bool = False


def build(root: Path, mounts: list[Mount], directory: str) -> None:
    """Mount the tree at a directory; the caller has a mount namespace of its own."""
    linux.mount("tmpfs", root, "mode=0755")
    # The outer ones first: one mount may lie inside another.
    ordered = sorted(mounts, key=lambda each: PurePath(each.target).parts)
    wanted = [_parts(each.target) for each in ordered]
    _show(Path("/"), root, [*wanted, _parts(directory)], skip=_OWN)
    for name in ("tmp", "run", "proc", "sys", "dev"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    linux.mount("proc", root / "proc")
    linux.bind(Path("/sys"), root / "sys", read_only=True)
    _make_devices(root / "dev", own_memory=all(each.target != _SHARED for each in mounts))
    for each in ordered:
        _place(root, each)
    workplace = root.joinpath(*_parts(directory))
    if not workplace.exists():
        workplace.mkdir(parents=True)


def _parts(path: str) -> tuple[str, ...]:
    """Return where a path leads: a link on the way (/var/run) must not lead out of the tree."""
    normal = os.path.normpath(path)
    if PurePath(normal).parts[1:2] and PurePath(normal).parts[1] not in _OWN:
        normal = os.path.realpath(normal)
    return PurePath(normal).parts[1:]


def _show(host: Path, own: Path, wanted: list[tuple[str, ...]], skip: frozenset[str]) -> None:
    """Bind a directory's entries; those in which a mount point is missing, entry by entry."""
    for entry in os.scandir(host):
        if entry.name in skip:
            continue
        target = own / entry.name
        below = [parts[1:] for parts in wanted if parts and parts[0] == entry.name]
        if entry.is_symlink():
            target.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir(follow_symlinks=False):
            target.mkdir()
            if any(not Path(entry.path, *parts).exists() for parts in below):
                _show(Path(entry.path), target, below, frozenset())
            else:
                _bind(Path(entry.path), target)
        else:
            target.touch()
            _bind(Path(entry.path), target)


def _bind(source: Path, target: Path) -> None:
    # What this user may not see, a container has no use for.
    with contextlib.suppress(PermissionError):
        linux.bind(source, target, read_only=True)


def _make_devices(folder: Path, *, own_memory: bool) -> None:
    for name in _DEVICES:
        if Path("/dev", name).exists():
            (folder / name).touch()
            linux.bind(Path("/dev", name), folder / name, read_only=False)
    for name, target in _DEVICE_LINKS.items():
        (folder / name).symlink_to(target)
    (folder / "pts").mkdir()
    linux.mount("devpts", folder / "pts", "newinstance,ptmxmode=0666,mode=0620")
    (folder / "ptmx").symlink_to("pts/ptmx")
    (folder / "shm").mkdir()
    if own_memory:
        linux.mount("tmpfs", folder / "shm", _SHARED_MEMORY)


def _place(root: Path, each: Mount) -> None:
    source = Path(each.source)
    target = root.joinpath(*_parts(each.target))
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            target.mkdir()
        else:
            target.touch()
    linux.bind(source, target, read_only=each.read_only)
