"""The content of an image's build context: which files it has, and the hash that is its tag.

It reads files, so only entry points call it.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

# Changes when the way of hashing does: the same files then get another tag.
_SCHEME = "1"
_TAG_DIGITS = 20

# Caches, editors' files and whatever is hidden, by the name of a file or of any folder above it.
# Both fnmatch here and minimatch in the CDK read these, and agree on them.
_JUNK = (
    ".*",
    "__pycache__",
    "*.py[cod]",
    "*~",
    "*.sw[op]",
    "[#]*[#]",
    "*.orig",
    "*.rej",
    "Thumbs.db",
)


def content_tag(root: Path, image: str, build_args: Mapping[str, str]) -> str:
    """Return the tag of an image: a hash of its files below `root`, the folder `assets`.

    Names, contents and executable bits count, and the build arguments. Pins that the image is
    made of count as well, because they are defaults in its Dockerfile.
    """
    if not (root / "images" / image / "Dockerfile").is_file():
        raise FileNotFoundError(f"no Dockerfile of image {image!r} below {root}")
    digest = hashlib.sha256()
    for part in (_SCHEME, image, json.dumps(dict(build_args), sort_keys=True)):
        _update(digest, part.encode())
    for path in context_files(root, image):
        _update(digest, path.relative_to(root).as_posix().encode())
        if path.is_symlink():
            _update(digest, b"link")
            _update(digest, os.fsencode(path.readlink()))
        else:
            # The owner's bit is the one that git keeps.
            _update(digest, b"program" if path.stat().st_mode & stat.S_IXUSR else b"file")
            _update(digest, path.read_bytes())
    return digest.hexdigest()[:_TAG_DIGITS]


def build_arguments(root: Path, image: str) -> set[str]:
    """Return the names that an image's Dockerfile declares by ARG."""
    lines = (root / "images" / image / "Dockerfile").read_text().splitlines()
    words = (line.split() for line in lines)
    return {line[1].partition("=")[0] for line in words if line[:1] == ["ARG"] and line[1:]}


def context_files(root: Path, image: str) -> list[Path]:
    """Return the files of an image's build context, in an order that no file system decides."""
    found: list[Path] = []
    for folder in context_folders(image):
        found.extend(_walk(root / folder))
    found.extend(path for path in _kept(root / "images") if path.suffix == ".py")
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def asset_excludes(image: str) -> tuple[str, ...]:
    """Return the patterns with which a CDK asset of the folder `assets` holds the same files.

    They are for the CDK's default mode, in which a pattern without a slash matches a name at any
    depth, a later pattern wins, and `*` never matches a hidden name.
    """
    wanted = (pattern for folder in context_folders(image) for pattern in _include(folder))
    return ("*", *wanted, "!images/*.py", *_JUNK)


def context_folders(image: str) -> tuple[str, ...]:
    """Return the folders that an image's content is in, beside Python files in `images`."""
    return (f"images/{image}", "programs", "codebuild")


def _include(folder: str) -> Iterator[str]:
    parts = folder.split("/")
    for depth in range(1, len(parts) + 1):
        yield "!" + "/".join(parts[:depth])
    yield f"!{folder}/**"


def _walk(folder: Path) -> Iterator[Path]:
    for path in _kept(folder):
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _kept(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if not any(fnmatchcase(path.name, pattern) for pattern in _JUNK):
            yield path


def _update(digest: "hashlib._Hash", part: bytes) -> None:
    """Add one part with its length, so that no two lists of parts look alike."""
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)
