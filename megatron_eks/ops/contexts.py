"""What only the disk tells of a Dockerfile: the files beside it that it copies."""

from pathlib import Path

from megatron_eks.rules.dockerfiles import instructions
from megatron_eks.rules.images.image_contexts import IGNORED, sources

_MAX_BYTES = 1024**2


def files_beside(text: str, path: Path) -> dict[str, str]:
    """Return what a Dockerfile copies and is beside it, with the text of lists of packages.

    Docker, "Build context", .dockerignore files: one that has the Dockerfile's name comes first.
    """
    named = [source for step in instructions(text) for source in sources(step)]
    found = {source: held for source in named if (held := _held(path.parent / source)) is not None}
    for name in (f"{path.name}{IGNORED}", IGNORED) if found else ():
        held = _held(path.with_name(name))
        if held is not None:
            found[IGNORED] = held
            break
    return found


def _held(file: Path) -> str | None:
    """Return the text of a list, nothing of another file, and None where there is no file."""
    try:
        if not file.exists():
            return None
        read = file.name.endswith((".txt", IGNORED)) and file.is_file()
        small = read and file.stat().st_size <= _MAX_BYTES
        return file.read_text(errors="replace") if small else ""
    except (OSError, ValueError):
        return None  # Nobody can tell.
