"""Namespaces: which Pod Security level holds for jobs, and that they have no rights."""

import pytest

from megatron_eks.guards.check import check_manifests
from tests.charts import rendered
from tests.charts.rendered import Manifest, cluster, only, other_platform, pods

PREFIX = "pod-security.kubernetes.io"


def levels(manifests: list[Manifest], namespace: str) -> dict[str, str]:
    """Return the levels of a namespace by mode."""
    labels = only(manifests, "Namespace", namespace)["metadata"]["labels"]
    return {mode: labels[f"{PREFIX}/{mode}"] for mode in ("enforce", "audit", "warn")}


@pytest.mark.parametrize("level", ["restricted", "privileged"])
def test_jobs_run_under_the_level_of_the_cluster_file(level):
    """A relaxed namespace still tells about every pod that would break the strict level."""
    plan = other_platform(pod_security=level)
    found = levels(rendered.platform(plan), plan.platform.namespace)
    assert found == {"enforce": level, "audit": "restricted", "warn": "restricted"}
    assert not check_manifests(rendered.platform(plan))


def test_pods_of_jobs_are_somebody_with_no_rights_in_kubernetes(everything):
    """Their service account is what a role of AWS is bound to; no binding names it here."""
    account = only(everything, "ServiceAccount", cluster().platform.service_account)
    assert account["metadata"]["namespace"] == cluster().platform.namespace
    assert account["automountServiceAccountToken"] is False
    bound = [
        subject["name"]
        for manifest in everything
        if manifest["kind"] in {"ClusterRoleBinding", "RoleBinding"}
        for subject in manifest["subjects"]
    ]
    assert bound
    assert cluster().platform.service_account not in bound
    runs_as = {
        found.owner["metadata"]["name"]: found.spec.get("serviceAccountName")
        for found in pods(rendered.jobs(*rendered.shipped_jobs()))
    }
    assert len(runs_as) == len(rendered.shipped_jobs())
    assert set(runs_as.values()) == {cluster().platform.service_account}
