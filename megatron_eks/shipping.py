"""What goes to the pods with a job: the folder of the user's program, and our own programs."""

import ast
import gzip
import hashlib
import io
import re
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

from megatron_eks.build_context import context_files
from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.program_places import ZIP
from megatron_eks.code_folders import Folder, named, read_folder, real
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, ConfigError, Finding, Level, has_errors, warning
from megatron_eks.config.errors import Path as Place
from megatron_eks.config.job import AnyJob, TorchrunJob
from megatron_eks.config.load import Json
from megatron_eks.config.outputs import PLACEHOLDER_HOST
from megatron_eks.plan.cluster.data_access import PUSHED_DATA, S3
from megatron_eks.plan.jobs.code_files import MOST_ARCHIVE_BYTES, MOST_FILES, MOST_SENT_BYTES
from megatron_eks.plan.jobs.job import ARCHIVE
from megatron_eks.plan.jobs.torchrun import code_folder, script_within

_SCRIPT: Place = ("program", "script")
# What Pythons since 3.11 read, which this one may be: types, f-strings, templates, exceptions.
_NEWER = re.compile(
    r"""\s*(type\s+\w|(async\s+)?def\s+\w+\[|class\s+\w+\[|except\s)|.*[fFtT]['"]"""
)


@dataclass(frozen=True)
class _Code:
    """What was found in a folder, its archive, and what to say of a large one."""

    findings: Sequence[Finding] = ()
    archive: bytes | None = None
    large: Finding | None = None


def _wrong(path: Place, found: str, remedy: str, level: Level = Level.ERROR) -> Finding:
    return Finding(Code.OWN_PROGRAM, path, found, remedy, level)


class Shipped:
    """The files that travel with a job; a folder is read when somebody asks for what is in it."""

    def __init__(self, job: AnyJob, folder: Path, root: Path) -> None:
        """Take a job of a file in `folder`; `root` holds this project's programs.

        An image of the user's gets the programs; ours have them.
        """
        self._job, self._folder, self._root = job, folder, root
        self._has_code = isinstance(job, TorchrunJob) and code_folder(job) is not None
        self._any = self._has_code or not is_ours(job.image)

    @cached_property
    def _code(self) -> "_Code":
        job = self._job
        if not isinstance(job, TorchrunJob) or (name := code_folder(job)) is None:
            return _Code()
        where: Place = ("code", "path") if job.code.path is not None else _SCRIPT
        if found := list(_missing(job, self._folder, name, where)):
            return _Code(found)
        try:
            read = read_folder(self._folder / name, job.code.exclude)
            findings = list(_judge(job, name, read))
            archive = None if has_errors(findings) else pack(read.files)
        except OSError as problem:
            unread = f"{problem.filename} cannot be read: {problem.strerror}"
            return _Code([_wrong(where, unread, "make it readable, or exclude it")])
        large = _large(archive or b"", read, where)
        if large is not None and large.level is Level.ERROR:
            return _Code([*findings, large])
        return _Code(findings, archive, large)

    @property
    def findings(self) -> Sequence[Finding]:
        """What is wrong with the folder, and what stays here."""
        return self._code.findings

    @property
    def needs_bucket(self) -> Finding | None:
        """What to say where no bucket is known; None: the folder fits into the job's own file."""
        return self._code.large

    @property
    def archive(self) -> bytes | None:
        """The folder, packed; None where none goes. Raises ConfigError where it is not right."""
        if self._code.archive is None and self._has_code:
            raise ConfigError(self._code.findings)
        return self._code.archive

    def uri(self, bucket: str | None) -> str:
        """Return where in a bucket a large folder is, by its content."""
        name = hashlib.sha256(self.archive or b"").hexdigest()
        return f"{S3}{bucket or PLACEHOLDER_HOST}/{PUSHED_DATA}/code/{name}.tar.gz"

    def late(self, bucket: str | None) -> Callable[[], Mapping[str, str | bytes]] | None:
        """Return what reads the files; None where no file travels."""
        return partial(self.files, bucket) if self._any else None

    def files(self, bucket: str | None) -> dict[str, str | bytes]:
        """Return the files of the job itself; of a large folder, where it is."""
        found: dict[str, str | bytes] = {}
        if not is_ours(self._job.image):
            found[ZIP] = programs(self._root)
        if (archive := self.archive) is not None:
            large = self.needs_bucket is not None
            found |= {f"{ARCHIVE}.s3": self.uri(bucket)} if large else {ARCHIVE: archive}
        return found


def _large(archive: bytes, read: Folder, where: Place) -> Finding | None:
    """Say how an archive travels that does not fit into its job's own file; None: it does."""
    if len(archive) <= MOST_ARCHIVE_BYTES:
        return None
    largest = sorted(read.files, key=lambda each: -read.files[each].stat().st_size)[:3]
    exclude = f"exclude what the program does not need (largest: {', '.join(largest)})"
    packed = f"{len(archive) // 1024} KiB packed"
    if len(archive) > MOST_SENT_BYTES:
        found = f"{packed}, and a job takes {MOST_SENT_BYTES // 1024} along"
        remedy = f"{exclude}, or put it on the shared file system or into an image"
        return Finding(Code.CODE_SIZE, where, found, remedy)
    found = f"{packed} go through the cluster's bucket, which outputs.json does not name"
    remedy = f"run: meks deploy, then meks outputs; or {exclude}"
    return warning(Code.CODE_SIZE, where, found, remedy)


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
            yield _wrong(path, found, "put the file itself there")
        elif not (place.is_file() if is_file else place.is_dir()):
            found = f"no such {'file' if is_file else 'folder'} in {beside}: {place}"
            yield _wrong(path, found, "correct the path, or put it there")
    script = job.program.script
    if script is not None and not f"{script}".startswith(f"{name}/") and name != ".":
        found = f"{script} is not in code.path {name}, so no pod would have it"
        yield _wrong(_SCRIPT, found, "name a folder that holds it")


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
        yield _wrong(_SCRIPT, found, f"add '!{script}' to code.exclude, or name it otherwise")
    for file, path in read.files.items():
        yield from _content(file, path.read_bytes(), own=file == script)
    if missed := named(read):
        remedy = "name them in code.exclude, or take them along: '!NAME' there"
        yield warning(Code.CODE_LEFT_OUT, where, missed, remedy)


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
        newer = _NEWER.match(getattr(problem, "text", None) or "")
        level = Level.ERROR if own and not newer else Level.WARNING
        path = _SCRIPT if own else ("code",)
        yield _wrong(path, found, "correct it: every rank would end there", level)


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
    archive = shipped.archive
    if archive is None or not isinstance(job, TorchrunJob):
        return {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        # Python before 3.11.4 knows no filter; the archive was made above.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)  # noqa: S202 -- as above
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
