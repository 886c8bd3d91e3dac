"""Puts a support bundle together, says what is in it, and leaves no half of one behind."""

import contextlib
import io
import os
import tarfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError
from megatron_eks.config.load import Json
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, DONE, Failure
from megatron_eks.ops.kube.access import ERRORS, Access
from megatron_eks.ops.output import count, formatted, structured
from megatron_eks.ops.support import parts
from megatron_eks.ops.support.parts import FILES, Part
from megatron_eks.ops.support.redaction import Redactor
from megatron_eks.project import Project

_KIB = 1024
_CONTENTS = "contents.json"
_NOT_ANSWERED = "the API server gave no answer"


@dataclass(frozen=True)
class Missing:
    """A part that could not be read."""

    name: str
    why: str


@dataclass(frozen=True)
class Wish:
    """What to look at, and where to write."""

    cluster_file: Path
    job: str | None
    file: Path | None
    """None: a name with the time, in the current directory."""
    project: Callable[[], Project]
    access: Callable[[Project], Access]
    home: Path


@dataclass
class _Bundle:
    """A bundle that is being written."""

    archive: tarfile.TarFile
    redactor: Redactor
    written: dict[str, int] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)

    def add(self, name: str, text: str) -> None:
        """Write a file; OSError if that does not work."""
        data = text.encode("utf-8", "backslashreplace")
        entry = tarfile.TarInfo(f"support/{name}")
        entry.size, entry.mode = len(data), 0o600
        self.archive.addfile(entry, io.BytesIO(data))
        self.written[name] = len(data)


def run(wish: Wish, output: str, console: Console) -> int:
    """Write the bundle; what cannot be read is left out and named, a file makes it end with 4."""
    now = console.clock.now()
    file = wish.file or Path(f"meks-support-{now:%Y%m%d-%H%M%S}.tar.gz")
    with _whole(file) as partial_file:
        with tarfile.open(fileobj=partial_file, mode="w:gz") as archive:
            bundle = _Bundle(archive, Redactor(wish.home))
            for part in _parts(wish, bundle):
                _put(part, bundle, console)
            contents = _contents(bundle, f"{now:%Y-%m-%dT%H:%M:%SZ}")
            bundle.add(_CONTENTS, structured(contents, "json"))
        partial_file.flush()
    shown: Json = {"file": str(file), **contents}
    console.write(formatted(output, _lines(bundle, file), lambda: shown))
    return CHECK_FAILED if any(each.name.startswith(FILES) for each in bundle.missing) else DONE


def _parts(wish: Wish, bundle: _Bundle) -> Iterator[Part]:
    """Yield the parts, as far as files and cluster let us."""
    yield from parts.of_machine()
    yield from parts.of_files(wish.cluster_file)
    try:
        project = wish.project()
    except ConfigError as error:
        # That may be what help is needed with.
        yield parts.of_findings(error.findings)
        bundle.missing.append(Missing("plan.json", "the files have errors, see findings.txt"))
        return
    yield from parts.of_project(project)
    try:
        access = wish.access(project)
    except Failure as error:
        bundle.missing.append(Missing("kubernetes/", bundle.redactor.text(str(error))))
        return
    try:
        yield from _of_cluster(wish, access, project, bundle)
    finally:
        access.client.close()


def _of_cluster(wish: Wish, access: Access, project: Project, bundle: _Bundle) -> Iterator[Part]:
    for part in parts.of_cluster(access, project, wish.job):
        if any(_NOT_ANSWERED in each.why for each in bundle.missing):
            # Each part would wait for its own answer.
            bundle.missing.append(Missing(part.name, _NOT_ANSWERED))
        else:
            yield part
    if wish.job is not None:
        try:
            yield from parts.of_job(access.client, project, wish.job)
        except (Failure, *ERRORS) as error:
            bundle.missing.append(Missing(f"logs/{wish.job}/", bundle.redactor.text(str(error))))


def _put(part: Part, bundle: _Bundle, console: Console) -> None:
    try:
        found = part.read()
    except UnreachableError as error:
        why = f"{_NOT_ANSWERED}: {error}"
    except (Failure, *ERRORS, OSError, LookupError, ValueError) as error:
        why = str(error) or type(error).__name__
    else:
        bundle.add(part.name, bundle.redactor.part(found, part.kind))
        return
    why = bundle.redactor.text(why)
    bundle.missing.append(Missing(part.name, why))
    console.say(f"warning {Code.BUNDLE_PART_MISSING} {part.name}: {why}")


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[io.BufferedWriter]:
    """Give a file that gets its name only once all of it is on disk."""
    if file.exists():
        raise _not_written(file, "it exists", "name another file with --output")
    # Its name is known before it is there: Ctrl-C may come as soon as it is.
    partial_path = file.with_name(f".meks-support-{uuid.uuid4().hex}")
    remedy = "name another place: --output"
    try:
        with open(partial_path, "xb", opener=_owners_alone) as partial_file:
            remedy = "see to that, or name another place: --output"
            yield partial_file
            partial_file.flush()
            os.fsync(partial_file.fileno())
        partial_path.replace(file)
    except OSError as error:
        raise _not_written(file, str(error.strerror or error), remedy) from error
    finally:
        partial_path.unlink(missing_ok=True)


def _owners_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _not_written(file: Path, found: str, remedy: str) -> Failure:
    return Failure(Code.BUNDLE_NOT_WRITTEN, found, remedy, where=str(file))


def _contents(bundle: _Bundle, created: str) -> dict[str, Json]:
    files: list[Json] = [{"name": name, "bytes": size} for name, size in bundle.written.items()]
    missing: list[Json] = [dict(asdict(each)) for each in bundle.missing]
    redacted: dict[str, Json] = dict(sorted(bundle.redactor.counts.items()))
    return {
        "schema_version": 1,
        "created": created,
        "parts": files,
        "missing": missing,
        "redacted": redacted,
    }


def _lines(bundle: _Bundle, file: Path) -> Iterator[str]:
    for name, size in bundle.written.items():
        yield f"{size / _KIB:9.1f} KiB  {name}"
    for each in bundle.missing:
        yield f"  missing      {each.name}: {each.why}"
    taken = ", ".join(f"{number} {kind}" for kind, number in sorted(bundle.redactor.counts.items()))
    yield f"taken out: {taken or 'nothing'}"
    yield "addresses of private networks are kept; Secrets were not read"
    yield f"{count(len(bundle.written), 'part')} in {file}; look into it before you pass it on"
