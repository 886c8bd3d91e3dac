"""The checkpoints below an S3 URI: read and written so that two writers lose nothing."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import manifest_format, manifests
from megatron_eks.programs.checkpoint.manifest_format import BadManifestError, FileEntry, Manifest
from megatron_eks.programs.program import StopError
from megatron_eks.programs.s3_store import GoneError, RaceError, Store, Stored

_POINTER_ATTEMPTS = 10
_THREADS = 8


@dataclass(frozen=True)
class Far:
    """A checkpoint in S3, as far as its manifest and the sizes of its objects tell."""

    name: str
    step: int
    manifest: Manifest | None
    """None: there is none, or it cannot be read."""
    objects: tuple[Stored, ...]
    damage: str | None
    """Why it cannot be fetched; None: it is whole, as far as sizes tell."""
    unfinished: bool = False
    """No manifest: a push has not come to its end."""

    @property
    def size(self) -> int:
        """Return the bytes of its files, as far as they are known."""
        return self.manifest.size if self.manifest else sum(each.size for each in self.objects)


class Remote:
    """The manifests and the pointer; raises StopError where S3 does not answer as it should."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.removing: set[str] = set()
        """What this program has begun to remove; SIGTERM may end a removal in the middle."""

    def manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a checkpoint; None if there is none.

        Raises BadManifestError.
        """
        try:
            text, _ = self.store.read(manifest_format.manifest_key(name))
            return manifest_format.parse_manifest(text, name)
        except GoneError:
            return None

    def look(self, name: str) -> Far | None:
        """Return a checkpoint; None if nothing of this name is there."""
        step = manifest_format.iteration_of(name)
        objects = tuple(self.store.objects(f"{name}/")) if step is not None else ()
        if step is None or not objects:
            return None
        try:
            manifest = self.manifest(name)
        except BadManifestError as problem:
            return Far(name, step, None, objects, f"{manifest_format.MANIFEST}: {problem}")
        if manifest is None:
            damage = f"no {manifest_format.MANIFEST}: its push has not come to its end"
            return Far(name, step, None, objects, damage, unfinished=True)
        sizes = {each.key: each.size for each in objects}
        lacks = manifests.lacking(manifest, lambda file: sizes.get(manifest.key(file)))
        return Far(name, step, manifest, objects, lacks)

    def every(self) -> dict[int, Far]:
        """Return all checkpoints, whole or not, oldest first."""
        found = (self.look(name) for name in self.store.names())
        return {each.step: each for each in sorted(filter(None, found), key=lambda far: far.step)}

    def latest(self) -> tuple[str | None, str]:
        """Return what `latest` names, and what is wrong with its text."""
        try:
            text, _ = self.store.read(manifest_format.LATEST)
            return manifest_format.parse_latest(text), ""
        except GoneError:
            return None, ""
        except BadManifestError as problem:
            return None, str(problem)

    def problem(self, manifest: Manifest, file: FileEntry) -> str | None:
        """Say what is wrong with the object of a file, without fetching it."""
        key = manifest.key(file)
        try:
            size, checksum = self.store.describe(key)
        except GoneError:
            return f"{key} is missing in S3"
        if size != file.size:
            return f"{key} has {size} bytes in S3, {file.size} expected"
        if checksum != file.checksum:
            return f"{key} has another checksum in S3"
        return None

    def problems(self, manifest: Manifest) -> list[str]:
        """Say what is wrong with a checkpoint, by the checksums that S3 keeps."""
        look = partial(self.problem, manifest)
        return [*filter(None, manifests.in_threads(_THREADS, look, manifest.files))]

    def damage(self, far: Far | None) -> str | None:
        """Say why a checkpoint cannot be fetched, by the checksums that S3 keeps."""
        if far is None:
            return "it is not there"
        if far.damage or far.manifest is None:
            return far.damage
        return next(iter(self.problems(far.manifest)), None)

    def put(self, manifest: Manifest, directory: Path) -> bool:
        """Send what is not there yet, look at each file, and write the manifest; False if known.

        Raises FileNotFoundError if a file went away.
        """
        present = self._present(manifest)
        sent = False
        for file in manifest.files:
            if self.problem(manifest, file) is None:
                continue
            path, sent = directory / file.path, True
            self.store.upload(path, manifest.key(file), file.part_bytes)
            found = self.problem(manifest, file)
            if found:
                fix = "push another one; test this node's memory and network if it happens again"
                found = f"it changed since its manifest was written: {found}"
                raise StopError(program.EXIT_CHECK_FAILED, path, found, fix)
        if present:
            return sent
        key = manifest_format.manifest_key(manifest.name)
        try:
            self.store.write(key, manifest.text(), replacing=None)
        except RaceError:
            # Perhaps our own: an answer that got lost makes boto3 write again.
            if not self._present(manifest):
                raise
        return True

    def move_latest(self, wanted: str) -> str | None:
        """Let `latest` name a checkpoint, or the newest whole one after it, which is returned."""
        key = manifest_format.LATEST
        for _ in range(_POINTER_ATTEMPTS):
            now, tag = None, ""
            try:
                text, tag = self.store.read(key)
                now = manifest_format.parse_latest(text)
            except GoneError:
                pass
            except BadManifestError as problem:
                program.say(f"{self.store.uri}/{key}: {problem} - it is replaced")
            newest = self._newest_after(wanted) or wanted
            try:
                if now != newest:
                    text = manifest_format.latest_text(newest)
                    self.store.write(key, text, replacing=tag or None)
            except (RaceError, GoneError):
                continue
            return newest if newest != wanted else None
        place = f"{self.store.uri}/{key}"
        raise StopError(program.EXIT_FAILED, place, "others keep changing it", "push again")

    def _newest_after(self, wanted: str) -> str | None:
        step_of = manifest_format.step_of
        newer = [name for name in self.store.names() if step_of(name) > step_of(wanted)]
        newer.sort(key=step_of, reverse=True)
        return next((each for each in newer if self.damage(self.look(each)) is None), None)

    def _present(self, manifest: Manifest) -> bool:
        """Tell whether this very manifest is there; raises StopError for another one."""
        place = f"{self.store.uri}/{manifest.name}"
        try:
            present = self.manifest(manifest.name)
        except BadManifestError as problem:
            fix = f"remove {place}/{manifest_format.MANIFEST}, and push again"
            text = f"{manifest_format.MANIFEST}: {problem}"
            raise StopError(program.EXIT_CHECK_FAILED, place, text, fix) from problem
        if present is not None and present.id != manifest.id:
            text, fix = "another checkpoint of this name is there", "use one S3 URI for each run"
            raise StopError(program.EXIT_CHECK_FAILED, place, f"{text} already", fix)
        return present is not None
