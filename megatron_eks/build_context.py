"""The content of an image's build context: which files it has, and the hash that is its tag.

What CodeBuild gets is a copy of these files and nothing beside them.
"""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

# Changes when the way of hashing does: the same files then get another tag.
_SCHEME = "1"
_TAG_DIGITS = 20

# Caches, editors' files and whatever is hidden, by the name of a file or of any folder above it.
_JUNK = (
    *(".*", "__pycache__", "*.py[cod]", "*~", "*.sw[op]"),
    *("[#]*[#]", "*.orig", "*.rej", "Thumbs.db"),
)

# What the programs and the images' checks import of the catalog. No prices, permissions or instance
# types: an image is not built again for them.
_FACTS = ("__init__.py", "environment.*", "gpus.py", "job_keys.*", "models.*", "tables.py")


def content_tag(root: Path, image: str, build_args: Mapping[str, str]) -> str:
    """Return the tag of an image: a hash of its files below a root, and of its build arguments.

    The root is a checkout, or where the package is installed. Names, contents and executable bits
    count. Raises FileNotFoundError for an unknown image.
    """
    if not _dockerfile(root, image).is_file():
        raise FileNotFoundError(f"no Dockerfile of image {image!r} below {root}")
    parts = (_SCHEME, image, json.dumps(dict(build_args), sort_keys=True))
    return tag_of(parts, context_files(root, image))


def tag_of(
    parts: Iterable[str],
    files: Mapping[str, Path],
    look: Callable[[str, bytes], None] = lambda *_: None,
) -> str:
    """Return the hash of texts, and of files by their names in a context.

    `look` is shown the name and content of each file that is not a link.
    """
    digest = hashlib.sha256()
    for part in parts:
        _update(digest, part.encode())
    for name, path in files.items():
        _update(digest, name.encode())
        if path.is_symlink():
            _update(digest, b"link")
            _update(digest, os.fsencode(path.readlink()))
        else:
            # The owner's bit is the one that git keeps.
            _update(digest, b"program" if path.stat().st_mode & stat.S_IXUSR else b"file")
            content = path.read_bytes()
            _update(digest, content)
            look(name, content)
    return digest.hexdigest()[:_TAG_DIGITS]


def declared_arguments(root: Path, image: str) -> set[str]:
    """Return the names that an image's Dockerfile declares by ARG."""
    lines = _dockerfile(root, image).read_text().splitlines()
    words = (line.split() for line in lines)
    return {line[1].partition("=")[0] for line in words if line[:1] == ["ARG"] and line[1:]}


def context_paths(image: str) -> tuple[str, ...]:
    """Return what an image is made of, as paths in a checkout: folders, modules, and `*.py`."""
    return (
        f"assets/images/{image}",
        "assets/images/*.py",
        "assets/codebuild",
        "megatron_eks/__init__.py",
        "megatron_eks/programs",
        *(f"megatron_eks/catalog/{name}" for name in _FACTS),
    )


def context_files(root: Path, image: str) -> dict[str, Path]:
    """Return the files of an image's build context by their names in it.

    Their order is decided by no file system.
    """
    found = {
        path.relative_to(base).as_posix(): path
        for pattern in context_paths(image)
        for base in [_base(root, pattern)]
        for start in base.glob(pattern)
        for path in _walk(start)
    }
    return dict(sorted(found.items()))


def stage(root: Path, image: str, folder: Path) -> None:
    """Copy the files of an image's build context into a folder of their own."""
    copy(context_files(root, image), folder)


def copy(files: Mapping[str, Path], folder: Path) -> None:
    """Copy files into a folder, by their names there."""
    for name, path in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copy(path, target, follow_symlinks=False)


def _dockerfile(root: Path, image: str) -> Path:
    return _base(root, "assets/") / "assets" / "images" / image / "Dockerfile"


def _base(root: Path, name: str) -> Path:
    """Return what a name in the context is relative to: installed, the package has the assets."""
    package = root / "megatron_eks"
    return package if name.startswith("assets/") and (package / "assets").is_dir() else root


def _walk(path: Path) -> Iterator[Path]:
    if any(fnmatchcase(path.name, pattern) for pattern in _JUNK):
        return
    if path.is_dir() and not path.is_symlink():
        for each in path.iterdir():
            yield from _walk(each)
    else:
        yield path


def _update(digest: "hashlib._Hash", part: bytes) -> None:
    """Add one part with its length, so that no two lists of parts look alike."""
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)
