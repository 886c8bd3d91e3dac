"""`meks support-bundle` of a cluster: what is in it, what one may not read, and no secret."""

import contextlib
import json
import tarfile

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.support import bundle
from tests import schemas
from tests.annex import jobs
from tests.annex.acting import acting_as
from tests.annex.kubelet import runs
from tests.consoles import console, said, written

pytestmark = pytest.mark.control_plane

JOB, SECRET = "needs-help", "hf_AbCdEfGhIjKlMnOpQrStUv"


@pytest.fixture
def collect(project, tmp_path):
    """Return a function that collects a bundle: its parts, contents, and what was said."""

    def call(client, job=None):
        file = tmp_path / "bundle.tar.gz"
        seen = console()
        access = Access(client, is_local=True)
        cluster = project / "cluster.yaml"
        done = bundle.run(cluster, job, file, lambda _: access, output="json", console=seen)
        assert done == 0
        told = schemas.read("support-bundle", written(seen))
        with tarfile.open(file) as archive:
            found = {
                each.name.removeprefix("support/"): inner.read().decode()
                for each in archive
                if (inner := archive.extractfile(each)) is not None
            }
        return found, told, said(seen)

    return call


@pytest.fixture
def running(client, submit):
    """Run a job that holds secrets, and of which an event tells one."""
    job = runs.job(JOB, 1)
    for pod in jobs.pod_specs(job):
        (container,) = pod["containers"]
        container.setdefault("env", []).append({"name": "HF_TOKEN", "value": SECRET})
        container["args"] = [*container.get("args", ()), "--wandb-key", "LEAK01"]
    submit(job)
    wait_for("its pod", lambda: jobs.pods_of(client, job))
    namespace = job["metadata"]["namespace"]
    (pod, *_) = jobs.pods_of(client, job)
    about = {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": namespace}
    client.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{JOB}-said", "namespace": namespace},
            "involvedObject": about,
            "reason": "FailedMount",
            "message": "it began with password=LEAK02",
            "type": "Warning",
        }
    )


@pytest.mark.usefixtures("running")
def test_a_bundle_of_a_job(client, collect):
    """What commands say of the cluster and the job; no object, no log, no secret."""
    found, told, _ = collect(client, JOB)
    assert [each for each, text in found.items() if "LEAK" in text] == []
    assert json.loads(found["kubernetes/preflight.json"])["cluster"] == "techpulse"
    assert "p4d-0" in {each["name"] for each in json.loads(found["kubernetes/nodes.json"])}
    assert JOB in {each["name"] for each in json.loads(found["kubernetes/status.json"])["jobs"]}
    assert json.loads(found[f"jobs/{JOB}/status.json"])["name"] == JOB
    # KWOK's nodes have no logs.
    assert f"jobs/{JOB}/diagnosis.json" in {each["name"] for each in told["missing"]}
    everything = "".join(found.values())
    assert SECRET not in everything
    assert "111122223333" not in everything


def test_what_one_may_not_read_is_named_and_the_rest_is_there(client, collect):
    """Somebody who may read pods alone."""
    name = "reads-pods-alone"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    kinds = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    client.apply({**kinds, "kind": "ClusterRole", "rules": [rule]})
    client.apply(
        {
            **kinds,
            "kind": "ClusterRoleBinding",
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [
                {"kind": "User", "name": "helper", "apiGroup": "rbac.authorization.k8s.io"}
            ],
        }
    )
    with contextlib.closing(acting_as(client, "helper")) as limited:
        found, told, said = collect(limited, "no-such-job")
    missing = {each["name"]: each["why"] for each in told["missing"]}
    assert "plan.json" in found
    assert 'cannot list resource "nodes"' in missing["kubernetes/nodes.json"]
    assert "jobs/no-such-job/status.json" in missing
    assert "warning MEKS-0868 kubernetes/nodes.json: nodes is forbidden" in said
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        client.delete("rbac.authorization.k8s.io/v1", kind, name)
