"""The nodes of a cluster that run pods as processes, and the network between them."""

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.aws.server import LocalAws
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.kubelet.context import Settings
from megatron_eks.localcloud.kubernetes.kubelet.images import Image
from megatron_eks.localcloud.kubernetes.kubelet.network import GATEWAY
from megatron_eks.localcloud.kubernetes.kubelet.network import Settings as NetworkSettings

_PACKAGE = __package__ or ""
_NETWORK = "pod-network"


class Fleet:
    """The process nodes of one cluster, each a process of it. Start them from the main thread."""

    def __init__(
        self,
        plane: ControlPlane,
        images: Sequence[Image],
        *,
        aws: LocalAws | None = None,
        shared: Path | None = None,
        back_off_seconds: float = 1.0,
        heartbeat_seconds: float = 10.0,
    ) -> None:
        self._plane, self._aws = plane, aws
        self._images = images
        self._back_off_seconds, self._heartbeat_seconds = back_off_seconds, heartbeat_seconds
        self._folder = plane.folder / "nodes"
        self._numbers = itertools.count(1)
        self.shared = shared or self._folder / "shared"
        """What lies behind claims, one directory for each storage."""

    def start(self, *nodes: Object) -> None:
        """Start nodes as described; each registers itself."""
        if not self._holder_file.exists():
            self._start_network()
        for node in nodes:
            self._start_node(node)

    def lose(self, name: str) -> None:
        """Have a node stop as without power: its pods end, and nobody is told."""
        self._plane.processes.kill(_process(name))

    @property
    def holder(self) -> int:
        """The process that holds the pods' network, once there is a node."""
        return int(self._holder_file.read_text())

    @property
    def _holder_file(self) -> Path:
        return self._folder / "holder"

    def _start_network(self) -> None:
        self._folder.mkdir()
        file = self._folder / f"{_NETWORK}.json"
        plane = self._plane
        port = self._aws.port if self._aws else 0
        settings = NetworkSettings(plane.server, str(plane.authority), plane.token, port)
        _write(file, asdict(settings))
        self._run(_NETWORK, "network", file)
        plane.processes.wait(_NETWORK, self._holder_file.exists)

    def _start_node(self, node: Object) -> None:
        plane, name = self._plane, node["metadata"]["name"]
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        settings = Settings(
            node=node,
            number=next(self._numbers),
            holder=self.holder,
            server=plane.server,
            authority=str(plane.authority),
            token=plane.token,
            # It stands for this machine's loopback address, where the kubelet listens.
            certificate=str(plane.authority),
            key=str(plane.private_key),
            client_certificate=str(plane.client_certificate),
            port=plane.port(_process(name)),
            folder=str(folder),
            shared=str(self.shared),
            back_off_seconds=self._back_off_seconds,
            heartbeat_seconds=self._heartbeat_seconds,
            images=[asdict(image) for image in self._images],
            environment=self._environment(node),
        )
        file = folder / "settings.json"
        _write(file, asdict(settings))
        self._run(_process(name), "", file)

    def _environment(self, node: Object) -> dict[str, str]:
        """Return what EKS Pod Identity gives pods: a way to AWS, where there is a local one."""
        if self._aws is None:
            return {}
        region = node["metadata"]["labels"]["topology.kubernetes.io/region"]
        return self._aws.pods_environment(str(GATEWAY), region)

    def _run(self, name: str, module: str, file: Path) -> None:
        package = f"{_PACKAGE}.{module}" if module else _PACKAGE
        self._plane.processes.start(name, sys.executable, "-m", package, file)


def _process(node: str) -> str:
    return f"kubelet-{node}"


def _write(file: Path, settings: Mapping[str, object]) -> None:
    """Write a file that holds an administrator's token."""
    file.touch(mode=0o600)
    file.write_text(json.dumps(settings))
