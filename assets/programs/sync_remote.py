"""The checkpoints below an S3 URI: read and written so that two writers lose nothing."""

from pathlib import Path

import checkpoints
import program
import sync_manifest
from program import StopError
from s3_store import GoneError, RaceError, Store
from sync_manifest import BadManifestError, FileEntry, Latest, Manifest

_POINTER_ATTEMPTS = 10


class Remote:
    """The manifests and the pointer; raises StopError where one cannot be read."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a checkpoint; None unless all of it is there."""
        key = sync_manifest.manifest_key(name)
        try:
            return sync_manifest.parse_manifest(self.store.read(key)[0])
        except GoneError:
            return None
        except BadManifestError as problem:
            raise self._unreadable(key, problem) from problem

    def checkpoints(self) -> dict[int, Manifest]:
        """Return the checkpoints that are whole, oldest first."""
        found = {}
        for name in self.store.names():
            step = checkpoints.iteration_of(name)
            manifest = None if step is None else self.manifest(name)
            if step is not None and manifest:
                found[step] = manifest
        return dict(sorted(found.items()))

    def latest(self) -> Latest | None:
        """Return what `latest` names."""
        try:
            text, _ = self.store.read(sync_manifest.LATEST)
        except GoneError:
            return None
        return self._parse_latest(text)

    def wanted(self, name: str | None) -> Manifest | None:
        """Return the named checkpoint, or the newest one."""
        if name:
            return self.manifest(name)
        latest = self.latest()
        if latest:
            return self.manifest(latest.name)
        # A first push that ended between the manifest and the pointer.
        return next(reversed(self.checkpoints().values()), None)

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
        """Say what is wrong with a checkpoint."""
        return [text for file in manifest.files if (text := self.problem(manifest, file))]

    def put(self, manifest: Manifest, directory: Path) -> bool:
        """Send what is not there yet, look at each file, and write the manifest; False if known.

        Raises FileNotFoundError if a file went away.
        """
        present = self.manifest(manifest.name)
        if present:
            self._compare(manifest, present)
            return False
        for file in manifest.files:
            if self.problem(manifest, file) is None:
                continue
            path = directory / file.path
            self.store.upload(path, manifest.key(file), file.part_bytes)
            found = self.problem(manifest, file)
            if found:
                fix = "it changed while it was sent, or the network damages data; push again"
                raise StopError(program.EXIT_CHECK_FAILED, path, f"after sending: {found}", fix)
        key = sync_manifest.manifest_key(manifest.name)
        try:
            self.store.write(key, manifest.text(), replacing=None)
        except RaceError:
            # Perhaps our own: an answer that got lost makes boto3 write again.
            self._compare(manifest, self.manifest(manifest.name))
        return True

    def move_latest(self, wanted: Latest) -> Latest | None:
        """Let `latest` name a checkpoint; one that is newer stays and is returned."""
        key = sync_manifest.LATEST
        for _ in range(_POINTER_ATTEMPTS):
            try:
                text, tag = self.store.read(key)
            except GoneError:
                now, tag = None, ""
            else:
                now = self._parse_latest(text)
            if now and now.step >= wanted.step:
                return now if now.step > wanted.step else None
            try:
                self.store.write(key, wanted.text(), replacing=tag or None)
            except (RaceError, GoneError):
                continue
            return None
        place = f"{self.store.uri}/{key}"
        raise StopError(program.EXIT_FAILED, place, "others keep changing it", "push again")

    def _parse_latest(self, text: bytes) -> Latest:
        try:
            return sync_manifest.parse_latest(text)
        except BadManifestError as problem:
            raise self._unreadable(sync_manifest.LATEST, problem) from problem

    def _compare(self, manifest: Manifest, present: Manifest | None) -> None:
        if present is None or present.id != manifest.id:
            raise StopError(
                program.EXIT_CHECK_FAILED,
                f"{self.store.uri}/{manifest.name}",
                "another checkpoint of this name is there already",
                "use one S3 URI for each run",
            )

    def _unreadable(self, key: str, problem: Exception) -> StopError:
        return StopError(
            program.EXIT_CHECK_FAILED,
            f"{self.store.uri}/{key}",
            str(problem),
            "remove that object, or use the version of this program that wrote it",
        )
