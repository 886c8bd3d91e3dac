"""System calls that Python 3.11 has no function for; each raises OSError."""

import ctypes
import os
import signal
import struct
from pathlib import Path

# linux/sched.h
NEW_MOUNTS = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_IPC = 0x08000000
NEW_USERS = 0x10000000
NEW_PROCESSES = 0x20000000
NEW_NETWORK = 0x40000000

# linux/mount.h
_MS_BIND, _MS_RECURSIVE, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_MOUNT_ATTR_RDONLY = 1
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_PR_SET_PDEATHSIG = 1
# The same on every architecture, like all numbers since 424.
_SYS_MOUNT_SETATTR = 442

SIGNALLED = 128

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Put this process into new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def become(user: int, group: int) -> None:
    """Show the caller to itself as another user, in a user namespace of its own.

    Its rights on files stay what they are, and root has none outside of the namespace.
    """
    outer_user, outer_group = os.geteuid(), os.getegid()
    unshare(NEW_USERS)
    # Whoever may drop groups could pass by a file that refuses one of them: user_namespaces(7).
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {outer_user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {outer_group} 1")


def enter(pid: int, *names: str) -> None:
    """Join namespaces of another process: user, net, uts, ipc, mnt, pid (for children only)."""
    for name in names:
        with Path(f"/proc/{pid}/ns/{name}").open("rb") as file:
            _check(_libc.setns(file.fileno(), 0), f"setns {name}")


def mount(kind: str, target: Path, options: str = "") -> None:
    """Mount a file system that needs no device."""
    result = _libc.mount(kind.encode(), str(target).encode(), kind.encode(), 0, options.encode())
    _check(result, f"mount {kind} at {target}")


def bind(source: Path, target: Path, *, read_only: bool) -> None:
    """Show a file or directory, and what is mounted below it, at a second place."""
    flags = _MS_BIND | _MS_RECURSIVE
    result = _libc.mount(str(source).encode(), str(target).encode(), None, flags, None)
    _check(result, f"bind {source} at {target}")
    if read_only:
        protect(target, recursive=True)


def protect(target: Path, *, recursive: bool) -> None:
    """Make a mount read-only."""
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc.syscall(
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        str(target).encode(),
        _AT_RECURSIVE if recursive else 0,
        attributes,
        len(attributes),
    )
    _check(result, f"make {target} read-only")


def keep_mounts_private() -> None:
    """Keep mounts of this namespace from others, and theirs from it."""
    _check(_libc.mount(None, b"/", None, _MS_PRIVATE | _MS_RECURSIVE, None), "make / private")


def change_root(root: Path) -> None:
    """Make a mount the root of this mount namespace, and let go of the old one."""
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), f"pivot_root {root}")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def set_host_name(name: str) -> None:
    """Name this UTS namespace."""
    encoded = name.encode()
    _check(_libc.sethostname(encoded, len(encoded)), "sethostname")


def restore_signals() -> None:
    """Have this process end by the signals that Python ignores, as other programs do."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def exit_code(code: int) -> int:
    """Return how a process ended as a shell tells it, from what Python tells."""
    return SIGNALLED - code if code < 0 else code


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends.

    A change of credentials takes it back, so call it after the last one.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
