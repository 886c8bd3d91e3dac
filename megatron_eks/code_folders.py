"""Folders of the user's whose files travel: which go, and which stay here, each for a reason."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from megatron_eks.plan.jobs.code_files import (
    LARGEST_FILE_BYTES,
    MOST_FILES,
    Pattern,
    decision,
    own_patterns,
    patterns,
)

_MOST_NAMED = 5
# What a program may look for in its folder; nobody misses junk.
_MISSED = frozenset({"a link to elsewhere", "a secret", "data", "no regular file"})


@dataclass
class Folder:
    """What a folder holds that goes to the pods, and what stays here."""

    files: dict[str, Path] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    """Why, by name."""


def read_folder(root: Path, exclude: Sequence[str] = ()) -> Folder:
    """Look through a folder; what stays here is not opened.

    Patterns of .gitignore hold below the folder that they stand in, of which the repository's may
    be further up.
    """
    root = real(root)
    top = next((each for each in (root, *root.parents) if (each / ".git").exists()), root)
    above = [each for each in reversed(root.parents) if each.is_relative_to(top)]
    prefix = "" if root == top else f"{root.relative_to(top).as_posix()}/"
    known = [*own_patterns(), *(line for each in above for line in _gitignore(each, top))]
    folder = Folder()
    _walk(root, known, [*patterns(exclude, "code.exclude", prefix)], (root, top), folder)
    return folder


def _gitignore(folder: Path, top: Path) -> Iterator[Pattern]:
    base = "" if folder == top else f"{folder.relative_to(top).as_posix()}/"
    file = folder / ".gitignore"
    if file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
        yield from patterns(text.splitlines(), ".gitignore", base)


def _walk(
    place: Path, known: list[Pattern], asked: list[Pattern], roots: tuple[Path, Path], into: Folder
) -> None:
    root, top = roots
    known = [*known, *_gitignore(place, top)]
    for entry in sorted(os.scandir(place), key=lambda each: each.name):
        path, name = Path(entry.path), Path(entry.path).relative_to(root).as_posix()
        is_folder = entry.is_dir(follow_symlinks=False)
        whole = path.relative_to(top).as_posix()
        decided = decision(whole, [*known, *asked], is_folder=is_folder)
        why = decided.why if decided is not None and decided.leaves_out else odd(path, root)
        if why is None and is_folder:
            if (path / "pyvenv.cfg").exists():
                into.left[f"{name}/"] = "junk"
            else:
                _walk(path, known, asked, roots, into)
        elif why is None and decided is None and path.stat().st_size > LARGEST_FILE_BYTES:
            into.left[name] = f"above {LARGEST_FILE_BYTES >> 20} MiB"
        elif why is None:
            into.files[name] = path
        else:
            into.left[f"{name}/" if is_folder else name] = why
        if len(into.files) > MOST_FILES:
            return


def odd(path: Path, root: Path) -> str | None:
    """Return why something is no file of the folder; links to its files are such."""
    if path.is_symlink():
        target = real(path)
        if not target.is_file() or not target.is_relative_to(root):
            return "a link to elsewhere"
    return None if path.is_file() or path.is_dir() else "no regular file"


def real(path: Path) -> Path:
    """Follow all links; a loop of them, which `Path.resolve` ends at, stays what it is."""
    return Path(os.path.realpath(path))


def named(read: Folder) -> str:
    """Say what stays here and somebody may miss, each with its reason; empty: nothing."""
    missed = [
        f"{file} ({why})" for file, why in read.left.items() if why in _MISSED or "MiB" in why
    ]
    more = f" and {len(missed) - _MOST_NAMED} more" if len(missed) > _MOST_NAMED else ""
    verb = "stay" if len(missed) > 1 else "stays"
    return f"{', '.join(missed[:_MOST_NAMED])}{more} {verb} here" if missed else ""
