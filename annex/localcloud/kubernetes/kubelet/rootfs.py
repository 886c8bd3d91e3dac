"""The file tree that a container sees: this machine's programs, read-only, and the pod's mounts."""

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path, PurePath

from megatron_eks.localcloud.kubernetes.kubelet import linux

# What of this machine stands in for an image's: programs, libraries, and the few files by which
# they find each other. Nothing else: somebody's home or secrets are no pod's business.
_SYSTEM = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"})
_SETTINGS = (
    *("alternatives", "ca-certificates.conf", "crypto-policies", "debian_version", "gai.conf"),
    *("group", "host.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic"),
    *("mime.types", "nsswitch.conf", "os-release", "passwd", "pki/ca-trust/extracted"),
    *("pki/tls/certs", "protocols", "services", "shells", "ssl/certs", "ssl/openssl.cnf"),
    *("terminfo", "timezone"),
)
# What every container has of its own, whatever its mounts are.
_OWN = ("tmp", "run", "proc", "sys", "dev", "etc", "home", "root", "var/tmp")
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
    _show(Path("/"), root, [*wanted, _parts(directory)], _SYSTEM)
    for name in _OWN:
        (root / name).mkdir(parents=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    (root / "var" / "run").symlink_to("/run")
    for name in _SETTINGS:
        if (source := Path("/etc", name)).exists():
            # What a link of this machine leads to is a file of the container's own.
            _place(root, Mount(str(source.resolve()), f"/etc/{name}", read_only=True))
    linux.mount("proc", root / "proc")
    linux.bind(Path("/sys"), root / "sys", read_only=True)
    _make_devices(root / "dev", own_memory=all(each.target != _SHARED for each in mounts))
    for each in ordered:
        _place(root, each)
    workplace = _inside(root, directory)
    if not workplace.exists():
        workplace.mkdir(parents=True)


def _inside(root: Path, path: str) -> Path:
    """Return a container's path as this machine has it; links in volumes are other pods' work."""
    target = root.joinpath(*_parts(path))
    if not target.resolve().is_relative_to(root.resolve()):
        raise OSError(errno.ELOOP, f"a link leads out of the container on the way to {path}")
    return target


def _parts(path: str) -> tuple[str, ...]:
    """Return where a path leads: a link on the way (/lib) must not lead out of the tree."""
    normal = PurePath(os.path.normpath(path))
    if normal.parts[1:2] == ("var",) and normal.parts[2:3] == ("run",):
        normal = PurePath("/run", *normal.parts[3:])
    if {*normal.parts[1:2]} <= _SYSTEM:
        normal = PurePath(os.path.realpath(normal))
    return normal.parts[1:]


def _show(
    host: Path, own: Path, wanted: list[tuple[str, ...]], names: frozenset[str] | None = None
) -> None:
    """Bind a directory's entries; those in which a mount point is missing, entry by entry."""
    for entry in os.scandir(host):
        if names is not None and entry.name not in names:
            continue
        target = own / entry.name
        below = [parts[1:] for parts in wanted if parts and parts[0] == entry.name]
        if entry.is_symlink():
            target.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir(follow_symlinks=False):
            target.mkdir()
            if any(not Path(entry.path, *parts).exists() for parts in below):
                _show(Path(entry.path), target, below)
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
    target = _inside(root, each.target)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            target.mkdir()
        else:
            target.touch()
    linux.bind(source, target, read_only=each.read_only)
