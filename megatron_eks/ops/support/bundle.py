"""Puts a support bundle together without what is nobody's business, and leaves no half of one."""

import contextlib
import io
import ipaddress
import json
import os
import re
import tarfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError
from megatron_eks.config.load import Json
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, DONE, Failure
from megatron_eks.ops.kube.access import ERRORS, Access
from megatron_eks.ops.output import count, formatted, structured
from megatron_eks.ops.planning.plan_json import plan_as_json
from megatron_eks.ops.support import parts
from megatron_eks.ops.support.files import (
    Value,
    facts_in,
    is_output,
    is_setting,
    shown_file,
    shown_object,
)
from megatron_eks.ops.support.parts import FILES, Kind, Part
from megatron_eks.ops.support.text import HIDDEN, Texts
from megatron_eks.project import Project

_KIB = 1024
_CONTENTS = "contents.json"
_NOT_ANSWERED = "the API server gave no answer"

_ACCOUNT = re.compile(r"(?<![\w.-])\d{12}(?![\w.-])|(?<=:)\d{12}(?=:)|(?<!\d)\d{12}(?=\.dkr\.)")
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")


class Redactor:
    """Takes secrets, accounts, people and public addresses out, and counts them."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._known: dict[tuple[str, str], str] = {}
        self._texts = Texts()
        self.counts = self._texts.counts
        """How many values of each kind were taken out."""

    def text(self, text: str, *, own: bool = False) -> str:
        """Return text without them; `own` is text that this project wrote."""
        text = self._texts.without_secrets(text, own=own)
        text = _ACCOUNT.sub(self._placeholder("account ids", "ACCOUNT"), text)
        text = _MAIL.sub(self._placeholder("mail addresses", "MAIL"), text)
        text = _ADDRESS.sub(self._address, text)
        return text.replace(self._home, "~") if len(self._home) > 1 else text

    def part(self, value: Value, kind: Kind) -> str:
        """Return what a part of the bundle shows of what was read."""
        match kind:
            case "configuration" | "outputs":
                is_shown = is_setting if kind == "configuration" else is_output
                text = shown_file(value, is_shown, self._hide)
                self._texts.know([text])
                return self.text(text, own=True)
            case "objects":
                value = shown_object(value, self._hide)
                self._texts.know(facts_in(value))
            case "text" | "findings":
                return self.text(value, own=kind == "findings")
        return json.dumps(self._values(value, own=kind == "plan"), indent=2, default=str) + "\n"

    def _values(self, value: Value, *, own: bool) -> Value:
        if isinstance(value, dict):
            return {
                self.text(str(key), own=True): self._values(each, own=own)
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._values(each, own=own) for each in value]
        return self.text(value, own=own) if isinstance(value, str) else value

    def _hide(self, value: str, variable: str = "") -> str:
        self._texts.remember(value, variable)
        self.counts["values of others"] += bool(value)
        return HIDDEN

    def _placeholder(self, kind: str, name: str) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            self.counts[kind] += 1
            known = [each for each in self._known if each[0] == kind]
            return self._known.setdefault((kind, match[0]), f"{name}-{len(known) + 1}")

        return replace

    def _address(self, match: re.Match[str]) -> str:
        try:
            is_public = ipaddress.ip_address(match[0]).is_global
        except ValueError:
            return match[0]
        # Those of the VPC say nothing to others, and everything about a network that is wrong.
        return self._placeholder("public addresses", "ADDRESS")(match) if is_public else match[0]


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

    def miss(self, name: str, why: object) -> None:
        """Note what is left out."""
        self.missing[name] = self.redactor.text(str(why))

    def put(self, part: Part) -> None:
        """Read a part and write what of it is shown; what cannot be read is named."""
        if _NOT_ANSWERED in "".join(self.missing.values()) and part.asks:
            # Each part would wait for its own answer.
            self.miss(part.name, _NOT_ANSWERED)
            return
        try:
            shown = self.redactor.part(part.read(), part.kind)
        except UnreachableError as error:
            self.miss(part.name, f"{_NOT_ANSWERED}: {error}")
        except (Failure, *ERRORS, OSError, LookupError, ValueError) as error:
            self.miss(part.name, str(error) or type(error).__name__)
        else:
            self.add(part.name, shown)
            return
        why = self.missing[part.name]
        self.console.say(f"warning {Code.BUNDLE_PART_MISSING} {part.name}: {why}")


def run(wish: Wish, output: str, console: Console) -> int:
    """Write the bundle; what cannot be read is left out and named, a file makes it end with 4."""
    now = console.clock.now()
    file = wish.file or Path(f"meks-support-{now:%Y%m%d-%H%M%S}.tar.gz")
    with _whole(file) as partial_file:
        with tarfile.open(fileobj=partial_file, mode="w:gz") as archive:
            bundle = _Bundle(archive, Redactor(wish.home), console)
            for part in _parts(wish, bundle):
                bundle.put(part)
            contents: dict[str, Json] = {
                "schema_version": 1,
                "created": f"{now:%Y-%m-%dT%H:%M:%SZ}",
                "parts": [{"name": name, "bytes": size} for name, size in bundle.written.items()],
                "missing": [{"name": name, "why": why} for name, why in bundle.missing.items()],
                "redacted": dict(sorted(bundle.redactor.counts.items())),
            }
            bundle.add(_CONTENTS, structured(contents, "json"))
        partial_file.flush()
    shown: Json = {"file": str(file), **contents}
    console.write(formatted(output, _lines(bundle, file), lambda: shown))
    return CHECK_FAILED if any(name.startswith(FILES) for name in bundle.missing) else DONE


def _parts(wish: Wish, bundle: _Bundle) -> Iterator[Part]:
    """Yield the parts, as far as files and cluster let us."""
    yield Part("versions.json", parts.versions, "plan")
    yield from parts.of_files(wish.cluster_file)
    try:
        project = wish.project()
    except ConfigError as error:
        # That may be what help is needed with.
        yield parts.of_findings(error.findings)
        bundle.miss("plan.json", "the files have errors, see findings.txt")
        return
    yield Part("plan.json", lambda: plan_as_json(project), "plan")
    yield parts.of_findings((*project.errors, *project.warnings))
    try:
        access = wish.access(project)
    except Failure as error:
        bundle.miss("kubernetes/", error)
        return
    with contextlib.closing(access.client):
        yield from parts.of_cluster(access, project, wish.job)
        if wish.job is None:
            return
        try:
            yield from parts.of_job(access.client, project, wish.job)
        except (Failure, *ERRORS) as error:
            bundle.miss(f"logs/{wish.job}/", error)


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
    taken = ", ".join(f"{number} {kind}" for kind, number in sorted(bundle.redactor.counts.items()))
    yield f"taken out: {taken or 'nothing'}"
    yield "addresses of private networks are kept; Secrets were not read"
    yield f"{count(len(bundle.written), 'part')} in {file}; look into it before you pass it on"
