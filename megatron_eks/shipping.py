"""What goes to the pods with a job: the folder of the user's program, and our own programs."""

import ast
import gzip
import io
import os
import re
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from megatron_eks.build_context import context_files
from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.program_options import ZIP
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, Finding, Level, has_errors, warning
from megatron_eks.config.errors import Path as Place
from megatron_eks.config.job import AnyJob, TorchrunJob
from megatron_eks.config.load import Json
from megatron_eks.plan.jobs.code_files import (
    LARGEST_FILE_BYTES,
    MOST_ARCHIVE_BYTES,
    MOST_FILES,
    Pattern,
    decision,
    own_patterns,
    patterns,
)
from megatron_eks.plan.jobs.job import ARCHIVE
from megatron_eks.plan.jobs.torchrun import code_folder, script_within

_SCRIPT: Place = ("program", "script")
_MOST_NAMED = 5
# What Pythons since 3.11 read, which this one may be: types, f-strings, templates, exceptions.
_NEWER = re.compile(
    r"""\s*(type\s+\w|(async\s+)?def\s+\w+\[|class\s+\w+\[|except\s)|.*[fFtT]['"]"""
)
# What a program may look for in its folder; nobody misses junk.
_MISSED = frozenset({"a link to elsewhere", "a secret", "data", "no regular file"})


@dataclass
class Folder:
    """What a folder holds that goes to the pods, and what stays here."""

    files: dict[str, Path] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    """Why, by name."""


@dataclass(frozen=True)
class Shipped:
    """The files that travel with a job, and what was found while they were read."""

    findings: tuple[Finding, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


def ship(job: AnyJob, folder: Path, root: Path) -> Shipped:
    """Read what travels with the job of a file in `folder`; `root` holds this project's programs.

    An image of the user's gets the programs; ours have them.
    """
    files = {} if is_ours(job.image) else {ZIP: programs(root)}
    name = code_folder(job) if isinstance(job, TorchrunJob) else None
    if name is None or not isinstance(job, TorchrunJob):
        return Shipped((), files)
    where: Place = ("code", "path") if job.code.path is not None else _SCRIPT
    if found := list(_missing(job, folder, name, where)):
        return Shipped(tuple(found))
    try:
        read = read_folder(folder / name, job.code.exclude)
        findings = list(_judge(job, name, read))
        if has_errors(findings):
            return Shipped(tuple(findings))
        archive = pack(read.files)
    except OSError as problem:
        unread = f"{problem.filename} cannot be read: {problem.strerror}"
        remedy = "make it readable, or exclude it"
        return Shipped((Finding(Code.OWN_PROGRAM, where, unread, remedy),))
    if len(archive) > MOST_ARCHIVE_BYTES:
        found_size = (
            f"{len(archive) // 1024} KiB packed, and a job carries {MOST_ARCHIVE_BYTES // 1024}"
        )
        largest = sorted(read.files, key=lambda each: -read.files[each].stat().st_size)[:3]
        remedy = (
            f"exclude what the program does not need (largest: {', '.join(largest)}), or put it on "
            "the shared file system or into an image"
        )
        findings.append(Finding(Code.CODE_SIZE, where, found_size, remedy))
    return Shipped(tuple(findings), {**files, ARCHIVE: archive})


def _missing(job: TorchrunJob, folder: Path, name: str, where: Place) -> Iterator[Finding]:
    """Yield a folder or script that is not there, or is somewhere else."""
    wanted = {where: folder / name}
    if job.program.script is not None:
        wanted[_SCRIPT] = folder / job.program.script
    for path, place in wanted.items():
        beside = "the folder of the job file"
        is_file = path == _SCRIPT and job.program.script is not None
        if not real(place).is_relative_to(real(folder)):
            found = f"{place.name} leads out of {beside}"
            yield Finding(Code.OWN_PROGRAM, path, found, "put the file itself there")
        elif not (place.is_file() if is_file else place.is_dir()):
            found = f"no such {'file' if is_file else 'folder'} in {beside}: {place}"
            yield Finding(Code.OWN_PROGRAM, path, found, "correct the path, or put it there")
    script = job.program.script
    if script is not None and not f"{script}".startswith(f"{name}/") and name != ".":
        found = f"{script} is not in code.path {name}, so no pod would have it"
        yield Finding(Code.OWN_PROGRAM, _SCRIPT, found, "name a folder that holds it")


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


def _judge(job: TorchrunJob, name: str, read: Folder) -> Iterator[Finding]:
    """Yield what is wrong with the files that go, and name what a program may miss."""
    where: Place = ("code", "path") if job.code.path is not None else _SCRIPT
    if len(read.files) > MOST_FILES:
        found = f"{name} holds more than {MOST_FILES} files"
        yield Finding(Code.CODE_SIZE, where, found, "name a smaller folder by code.path")
        return
    script = script_within(job)
    if script is not None and script not in read.files:
        why = read.left.get(script, "its folder does")
        found = f"{script} itself stays here ({why})"
        remedy = f"add '!{script}' to code.exclude, or name it otherwise"
        yield Finding(Code.OWN_PROGRAM, _SCRIPT, found, remedy)
    for file, path in read.files.items():
        yield from _content(file, path.read_bytes(), own=file == script)
    if missed := named(read):
        remedy = "name them in code.exclude, or take them along: '!NAME' there"
        yield warning(Code.CODE_LEFT_OUT, where, missed, remedy)


def named(read: Folder) -> str:
    """Say what stays here and somebody may miss, each with its reason; empty: nothing."""
    missed = [
        f"{file} ({why})" for file, why in read.left.items() if why in _MISSED or "MiB" in why
    ]
    more = f" and {len(missed) - _MOST_NAMED} more" if len(missed) > _MOST_NAMED else ""
    verb = "stay" if len(missed) > 1 else "stays"
    return f"{', '.join(missed[:_MOST_NAMED])}{more} {verb} here" if missed else ""


def _content(name: str, content: bytes, *, own: bool) -> Iterator[Finding]:
    text = content.decode(errors="replace")
    if token := TOKEN.search(text):
        line = text.count("\n", 0, token.start()) + 1
        found = f"{name}:{line} holds a token, and everybody in the cluster could read it"
        remedy = "revoke it, and name a new one in runtime.secret_env; or exclude the file"
        yield Finding(Code.TOKEN_IN_FILE, _SCRIPT if own else ("code",), found, remedy)
    if not name.endswith(".py"):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(content, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        line = getattr(problem, "lineno", None) or 1
        found = f"{name}:{line}: {getattr(problem, 'msg', problem)}"
        remedy = "correct it: every rank would end there"
        newer = _NEWER.match(getattr(problem, "text", None) or "")
        level = Level.ERROR if own and not newer else Level.WARNING
        yield Finding(Code.OWN_PROGRAM, _SCRIPT if own else ("code",), found, remedy, level)


def pack(files: Mapping[str, Path]) -> bytes:
    """Return files as an archive whose bytes depend on names, contents and executable bits."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def unpack(job: AnyJob, shipped: Shipped, folder: Path) -> dict[str, Json]:
    """Put a job's code into a folder beside its file, and return the blocks that say so."""
    archive = shipped.files.get(ARCHIVE)
    if archive is None or not isinstance(job, TorchrunJob):
        return {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    own = job.program.model_dump(mode="json", exclude_none=True)
    if (script := script_within(job)) is not None:
        own["script"] = f"{folder.name}/{script}"
    return {"program": own, "code": {"path": folder.name, "exclude": list(job.code.exclude)}}


@cache
def programs(root: Path) -> bytes:
    """Return the programs of this project as a zip that `python3` runs, the same for all jobs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        ours = context_files(root, "fsdp")
        named = {name: path for name, path in ours.items() if name.startswith("megatron_eks/")}
        start = next(name for name in named if name.endswith("programs/zip_start.py"))
        for name, path in {"__main__.py": named[start], **named}.items():
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
