"""The whole manifests of the default cluster, so that no change goes unread."""

import pytest

from tests import normalise

FILES = (
    "jobs/bridge-cpt-techpulse",
    "jobs/data-prep-techpulse",
    "jobs/ddp-llama-3-2-1b",
    "jobs/export-techpulse",
    "jobs/fetch-llama-3-1-8b",
    "jobs/fetch-tokenizer",
    "jobs/fsdp-llama-2-7b",
    "jobs/import-llama-3-1-8b",
    "jobs/megatron-cpt-techpulse",
    "jobs/megatron-gpt-7b",
    "jobs/nccl-test-p4d",
    "platform/00-namespaces",
    "platform/10-network-policies",
    "platform/11-quotas",
    "platform/20-storage",
    "platform/30-nvidia-device-plugin",
    "platform/31-efa-device-plugin",
    "platform/32-dcgm-exporter",
    "platform/40-training-operator",
    "platform/41-job-records",
    "validation/all-reduce-p4d",
    "validation/efa-check-p4d",
    "validation/nvidia-smi-p4d",
    "validation/sample-training-p4d",
    "validation/storage-p4d",
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
