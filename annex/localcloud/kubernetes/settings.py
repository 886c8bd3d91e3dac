"""What a local cluster is to be, and its start."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.kubernetes.kubelet.images import Image
from megatron_eks.localcloud.kubernetes.state import LOG_FILE

_FILE = "settings.json"
_PACKAGE = __package__ or ""


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
    without: Sequence[str] = ()
    """Programs that it does not need."""
    watch: Sequence[str] = ()
    """Files with a scrape configuration and rules, for a Prometheus that watches process nodes."""
    aws_port: int = 0
    """That of AWS; 0: any that is free."""

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the cluster's process, which outlives this one and its terminal."""
        file = self.folder / _FILE
        file.write_text(json.dumps({**asdict(self), "folder": str(self.folder)}))
        with (self.folder / LOG_FILE).open("wb") as log:
            return subprocess.Popen(  # noqa: S603 -- our own entry point
                [sys.executable, "-m", _PACKAGE, file],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @classmethod
    def read(cls, file: Path) -> "Settings":
        """Return what a file says."""
        written = json.loads(file.read_text())
        images = [Image.read(each) for each in written.pop("images")]
        return cls(folder=Path(written.pop("folder")), images=images, **written)
