"""An object in S3, or all objects below a prefix."""

import hashlib
import json
from pathlib import Path

from megatron_eks.programs import program, s3_store
from megatron_eks.programs.fetch.files import MARKER, RemoteFile
from megatron_eks.programs.program import StopError
from megatron_eks.programs.s3_store import GoneError, Store


class S3Source:
    """What a URI held when it was listed; an object that changes meanwhile is found."""

    def __init__(self, uri: str) -> None:
        s3_store.check_uri(uri)
        self.kind = "s3"
        self.name = uri
        parent, _, last = uri.rpartition("/")
        # `s3://bucket` has no slash to cut at.
        whole = uri.endswith("/") or parent == "s3:/"
        self._store = Store(uri if whole else parent)
        prefix = "" if whole else last
        self._keys: dict[str, str] = {}
        self.files: list[RemoteFile] = []
        for stored in self._store.objects(prefix):
            # `data` is an object or a folder, and not the start of `database`.
            if prefix and stored.key != prefix and not stored.key.startswith(f"{prefix}/"):
                continue
            # A folder's own object, as consoles make it.
            if stored.key.endswith("/"):
                continue
            path = stored.key if stored.key == prefix else stored.key.removeprefix(f"{prefix}/")
            if path == MARKER:
                continue
            self._keys[path] = stored.key
            self.files.append(RemoteFile(path, stored.size, tag=stored.tag))
        if not self.files:
            raise StopError(program.EXIT_NOT_FOUND, uri, "no object there", "correct the URI")
        listing = json.dumps([(file.path, file.size, file.tag) for file in self.files])
        self.revision = hashlib.sha256(listing.encode()).hexdigest()

    def download(self, file: RemoteFile, directory: Path) -> None:
        """Fetch one object; boto3 refuses one that changes while it is read."""
        key = self._keys[file.path]
        try:
            size, _ = self._store.describe(key)
            self._store.download(key, directory / file.path)
            found = "" if size == file.size else "it changed while the others were fetched"
        except GoneError:
            found = "it went away while the others were fetched"
        if found:
            place, remedy = f"{self.name}: {key}", "start again when nobody writes there"
            raise StopError(program.EXIT_CHECK_FAILED, place, found, remedy)
