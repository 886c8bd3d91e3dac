"""The whole manifests of the default cluster, so that no change goes unread."""

import pytest

from tests import normalise

FILES = (
    "jobs/megatron-cpt-techpulse",
    "platform/00-namespaces",
    "platform/10-network-policies",
    "platform/11-quotas",
    "platform/20-storage",
    "platform/30-nvidia-device-plugin",
    "platform/31-efa-device-plugin",
    "platform/32-dcgm-exporter",
    "platform/40-training-operator",
    "validation/nvidia-smi-p4d",
)
# The operator's file holds the generated CRD, which has a committed copy and tests of its own.
CRD = "kind: CustomResourceDefinition"


@pytest.mark.parametrize("file", FILES, ids=[file.replace("/", "-") for file in FILES])
def test_manifest(manifests, snapshot, file):
    """Each file is the one that was reviewed."""
    text = (manifests / f"{file}.k8s.yaml").read_text()
    kept = [document for document in text.split("---\n") if CRD not in document]
    assert normalise.text("---\n".join(kept), {}) == snapshot


def test_no_other_manifest(manifests):
    """A new file needs a snapshot of its own."""
    found = {str(path.relative_to(manifests)) for path in manifests.rglob("*.yaml")}
    assert found == {f"{file}.k8s.yaml" for file in FILES}
