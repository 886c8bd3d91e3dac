"""Puts a support bundle together without what is nobody's business, and leaves no half of one.

It holds what commands say of files, cluster and a job: no objects, and no logs.
"""

import contextlib
import io
import ipaddress
import json
import os
import platform as machine
import re
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from megatron_eks import __version__
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding
from megatron_eks.config.load import Json
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops import checks, diagnosis
from megatron_eks.ops.cluster import preflight
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, DONE, Failure
from megatron_eks.ops.jobs import diagnosis as kube_diagnosis
from megatron_eks.ops.jobs import logs, nodes, overview, status, status_view
from megatron_eks.ops.kube import teams
from megatron_eks.ops.kube.access import ERRORS, Access
from megatron_eks.ops.opening import today
from megatron_eks.ops.output import count, formatted, structured
from megatron_eks.ops.planning.plan_json import plan_as_json
from megatron_eks.ops.support.settings import shown_file
from megatron_eks.ops.support.text import HIDDEN, without_secrets
from megatron_eks.project import Project, job_files, load_project

_KIB = 1024
_FILES = "files/"
_TAIL = 2000
_PACKAGES = ("aws-cdk-lib", "boto3", "cdk8s", "cdk8s-plus-27", "pydantic", "websockets")

_ACCOUNT = re.compile(r"(?<![\w.-])\d{12}(?![\w.-])|(?<=:)\d{12}(?=:)|(?<!\d)\d{12}(?=\.dkr\.)")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_QUOTED = re.compile(r"'([^'\n]*)'")

# JSON, and what dataclasses become.
Value = Any


class Redactor:
    """Takes secrets, accounts, people and public addresses out."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self.hidden: set[str] = set()
        """Values of the files that go where our own words quote them, too."""

    def text(self, text: str, *, own: bool = False) -> str:
        """Return text without them; `own` is text that this project wrote."""
        if own:
            text = _QUOTED.sub(lambda match: HIDDEN if match[1] in self.hidden else match[0], text)
        text = without_secrets(text, own=own)
        text = _MAIL.sub("(mail address)", _ACCOUNT.sub("(account id)", text))
        text = _ADDRESS.sub(_address, text)
        return text.replace(self._home, "~") if len(self._home) > 1 else text

    def as_json(self, value: Value, *, own: bool = False) -> str:
        """Return values without them, as JSON."""
        return json.dumps(self._values(value, own=own), indent=2, default=str) + "\n"

    def _values(self, value: Value, *, own: bool) -> Value:
        if isinstance(value, dict):
            return {
                self.text(str(key), own=True): self._values(each, own=own)
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._values(each, own=own) for each in value]
        return self.text(value, own=own) if isinstance(value, str) else value


def _address(match: re.Match[str]) -> str:
    try:
        # Those of the VPC say nothing to others, and everything about a network that is wrong.
        return "(public address)" if ipaddress.ip_address(match[0]).is_global else match[0]
    except ValueError:
        return match[0]


@dataclass
class _Bundle:
    archive: tarfile.TarFile
    redactor: Redactor
    console: Console
    written: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Why parts could not be read, by name."""

    def add(self, name: str, text: str) -> None:
        """Write a file; OSError if that does not work."""
        data = text.encode("utf-8", "backslashreplace")
        entry = tarfile.TarInfo(f"support/{name}")
        entry.size, entry.mode = len(data), 0o600
        self.archive.addfile(entry, io.BytesIO(data))
        self.written[name] = len(data)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[Callable[[str], None]]:
        """Let a part be read and written; what cannot be read is named."""
        text: list[str] = []
        try:
            yield text.append
        except UnreachableError as error:
            # Each further part would wait for its own answer.
            self.miss(name, f"the API server gave no answer: {error}")
            raise
        except (Failure, *ERRORS, OSError, LookupError, ValueError) as error:
            self.miss(name, str(error) or type(error).__name__)
        else:
            self.add(name, *text)

    def findings(self, findings: Iterable[Finding]) -> None:
        """Write findings about the files."""
        text = "".join(f"{each}\n" for each in findings)
        self.add("findings.txt", self.redactor.text(text, own=True))

    def miss(self, name: str, why: object) -> None:
        """Say and note what is left out."""
        self.missing[name] = self.redactor.text(str(why))
        self.console.say(f"warning {Code.BUNDLE_PART_MISSING} {name}: {self.missing[name]}")


def run(
    cluster_file: Path,
    job: str | None,
    file: Path | None,
    access: Callable[[Project], Access],
    *,
    output: str,
    console: Console,
) -> int:
    """Write the bundle; what cannot be read is left out and named, a file makes it end with 4."""
    now = console.clock.now()
    file = file or Path(f"meks-support-{now:%Y%m%d-%H%M%S}.tar.gz")
    with _whole(file) as partial_file:
        with tarfile.open(fileobj=partial_file, mode="w:gz") as archive:
            bundle = _Bundle(archive, Redactor(Path.home()), console)
            _fill(bundle, cluster_file, job, access)
            contents: dict[str, Json] = {
                "schema_version": 1,
                "created": f"{now:%Y-%m-%dT%H:%M:%SZ}",
                "parts": [{"name": name, "bytes": size} for name, size in bundle.written.items()],
                "missing": [{"name": name, "why": why} for name, why in bundle.missing.items()],
            }
            bundle.add("contents.json", structured(contents, "json"))
        partial_file.flush()
    shown: Json = {"file": str(file), **contents}
    console.write(formatted(output, _lines(bundle, file), lambda: shown))
    return CHECK_FAILED if any(name.startswith(_FILES) for name in bundle.missing) else DONE


def _fill(
    bundle: _Bundle, cluster_file: Path, job: str | None, access: Callable[[Project], Access]
) -> None:
    redactor = bundle.redactor
    bundle.add("versions.json", redactor.as_json(_versions(), own=True))
    folder = cluster_file.parent.resolve()
    files = {path: f"{_FILES}jobs/{path.name}" for path in job_files(cluster_file)}
    if os.path.lexists(cluster_file):
        files = {cluster_file: f"{_FILES}{cluster_file.name}", **files}
    for path, name in files.items():
        with bundle.part(name) as write:
            write(redactor.text(shown_file(path, folder, redactor.hidden), own=True))
    try:
        project = load_project(cluster_file, today(), makes=False)
    except ConfigError as error:
        # That may be what help is needed with.
        bundle.findings(error.findings)
        bundle.miss("plan.json", "the files have errors, see findings.txt")
        return
    with bundle.part("plan.json") as write:
        write(redactor.as_json(plan_as_json(project), own=True))
    bundle.findings((*project.errors, *project.warnings))
    try:
        opened = access(project)
    except Failure as error:
        bundle.miss("kubernetes/", error)
        return
    with contextlib.closing(opened.client), contextlib.suppress(UnreachableError):
        _add_cluster(bundle, opened, project, job)


def _versions() -> Value:
    packages = {name: metadata.version(name) for name in _PACKAGES}
    system = machine.platform()
    return {"meks": __version__, "python": sys.version, "system": system, "packages": packages}


def _add_cluster(bundle: _Bundle, access: Access, project: Project, job: str | None) -> None:
    client, plan, as_json = access.client, project.cluster, bundle.redactor.as_json
    with bundle.part("kubernetes/version.json") as write:
        write(as_json(client.request("GET", "/version")))
    with bundle.part("kubernetes/status.json") as write:
        write(as_json(overview.as_json(overview.read(client, plan))))
    with bundle.part("kubernetes/nodes.json") as write:
        write(as_json([asdict(each) for each in nodes.read(client, plan)]))
    with bundle.part("kubernetes/preflight.json") as write:
        write(as_json(checks.as_json(plan, preflight.cluster(access, project))))
    if job is None:
        return
    with bundle.part(f"jobs/{job}/status.json") as write:
        own = teams.narrowed(client, project, None, None, job)
        write(as_json(status_view.as_json(status.read(client, own, job))))
    with bundle.part(f"jobs/{job}/diagnosis.json") as write:
        own = teams.narrowed(client, project, None, None, job)
        found = kube_diagnosis.of_job(client, own.cluster, job, logs.Options(tail=_TAIL))
        write(as_json(diagnosis.as_json(found)))


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[io.BufferedWriter]:
    """Give a file that gets its name only once all of it is on disk."""
    if file.exists():
        raise _not_written(file, "it exists", "name another file with --output")
    # Its name is known before it is there: Ctrl-C may come as soon as it is.
    partial_path = file.with_name(f".meks-support-{uuid.uuid4().hex}")
    remedy = "name another place: --output"
    try:
        with open(partial_path, "xb", opener=partial(os.open, mode=0o600)) as partial_file:
            remedy = "see to that, or name another place: --output"
            yield partial_file
            partial_file.flush()
            os.fsync(partial_file.fileno())
        partial_path.replace(file)
    except OSError as error:
        raise _not_written(file, str(error.strerror or error), remedy) from error
    finally:
        partial_path.unlink(missing_ok=True)


def _not_written(file: Path, found: str, remedy: str) -> Failure:
    return Failure(Code.BUNDLE_NOT_WRITTEN, found, remedy, where=str(file))


def _lines(bundle: _Bundle, file: Path) -> Iterator[str]:
    for name, size in bundle.written.items():
        yield f"{size / _KIB:9.1f} KiB  {name}"
    for name, why in bundle.missing.items():
        yield f"  missing      {name}: {why}"
    yield "addresses of private networks are kept; logs, objects and Secrets are not in it"
    yield f"{count(len(bundle.written), 'part')} in {file}; look into it before you pass it on"
