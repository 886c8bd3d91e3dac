"""What a local cluster is to be."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from annex.localcloud.kubernetes.kubelet.images import Image
from megatron_eks.kubernetes.client import Object

_FILE = "settings.json"


@dataclass(frozen=True)
class Settings:
    """A cluster's configuration, as its JSON file has it."""

    folder: Path
    """The cluster's own, with the manifests of a platform in `manifests/platform`."""
    region: str
    """Of clients of the AWS."""
    nodes: Sequence[Object] = ()
    """Those that are there from the start."""
    images: Sequence[Image] = ()
    """With some, the nodes run their pods as processes; without any, all are simulated."""
    empty: bool = False
    """Whether nodes and platform come by clients of AWS and Kubernetes alone."""
    aws_port: int = 0
    """That of AWS; 0: any that is free."""

    def write(self) -> Path:
        """Write the file into the cluster's folder, and return it."""
        file = self.folder / _FILE
        file.write_text(json.dumps({**asdict(self), "folder": str(self.folder)}))
        return file

    @classmethod
    def read(cls, file: Path) -> "Settings":
        """Return what a file says."""
        written = json.loads(file.read_text())
        images = [Image.read(each) for each in written.pop("images")]
        return cls(folder=Path(written.pop("folder")), images=images, **written)
