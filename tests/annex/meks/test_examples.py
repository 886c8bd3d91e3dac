"""Every object of every example, before a real API server."""

from collections.abc import Iterator

import pytest

from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Client, wait_for
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.operator import Operator, operator_file
from megatron_eks.synthesis import synthesise_manifests
from tests import examples

pytestmark = pytest.mark.control_plane

VOLUMES = ("PersistentVolumeClaim", "PersistentVolume")


@pytest.fixture(scope="module")
def empty(programs, emitted, tmp_path_factory) -> Iterator[Client]:
    """Return an administrator of a cluster with the operator and without the default platform."""
    plane = ControlPlane(programs, tmp_path_factory.mktemp("examples"))
    plane.start()
    operator = Operator(plane, manifests.read_file(operator_file(emitted / "platform")))
    operator.install()
    yield operator.client
    plane.stop()


@pytest.mark.parametrize("name", examples.NAMES)
def test_every_object_is_accepted(empty, name, tmp_path):
    """Strictly, in the namespaces that enforce their level, by quota and webhook too."""
    synthesise_manifests(examples.copy(name, tmp_path), tmp_path / "dist")
    platform = manifests.read(tmp_path / "dist" / "platform")
    assert {"Namespace", "PersistentVolume", "DaemonSet"} <= {each["kind"] for each in platform}
    for manifest in platform:
        empty.apply(manifest)
    for part in ("validation", "jobs"):
        for manifest in manifests.read(tmp_path / "dist" / part):
            empty.apply(manifest, dry_run=True)
    # The claims of the next example have the same names, and a claim keeps its volume.
    for kind in VOLUMES:
        for each in (each for each in platform if each["kind"] == kind):
            metadata = each["metadata"]
            empty.delete("v1", kind, metadata["name"], metadata.get("namespace"))
    wait_for("deletion", lambda: not any(empty.list("v1", kind) for kind in VOLUMES))
