"""What a folder holds that may be read or written without leaving it: links may lead anywhere."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """A file of a folder, or what stands in the place of one."""

    path: Path
    refused: str = ""
    """Why it is not read; nothing if it may be."""
    status: os.stat_result | None = None
    """Of the file that may be read, to know it again."""


def walk(folder: Path) -> Iterator[Entry]:
    """Yield all below a folder but its own folders, in the order of names; or a file itself.

    A link to a file of the folder is that file; a link to a folder is not followed.
    """
    if folder.is_file():
        yield Entry(folder, status=folder.stat())
        return
    root = folder.resolve()
    unread: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=unread.append):
        folders.sort()
        linked = [name for name in folders if Path(place, name).is_symlink()]
        for name in sorted([*names, *linked]):
            yield _judged(Path(place, name), root)
    for problem in unread:
        yield Entry(Path(problem.filename), problem.strerror or str(problem))


def _judged(path: Path, root: Path) -> Entry:
    try:
        target = path.resolve(strict=True)
        if not target.is_relative_to(root):
            return Entry(path, "a link out of the folder")
        status = target.lstat()
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            return Entry(path, "a link to a folder")
        if kind != stat.S_IFREG:
            return Entry(path, "no regular file")
        os.close(os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
    # A loop of links is a RuntimeError until Python 3.13.
    except (OSError, RuntimeError) as problem:
        if path.is_symlink():
            return Entry(path, "a link that leads nowhere")
        return Entry(path, getattr(problem, "strerror", None) or str(problem))
    return Entry(path, status=status)


def links(folder: Path) -> Iterator[Path]:
    """Yield the links in a folder, itself included: what is written there may go elsewhere."""
    if folder.is_symlink():
        yield folder
        return
    for place, folders, names in os.walk(folder):
        yield from (path for name in (*folders, *names) if (path := Path(place, name)).is_symlink())
