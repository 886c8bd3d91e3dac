"""Pods and the nodes they need, when templates and manifests are given together."""

import json
from typing import Any

import pytest

from megatron_eks.config.load import Json
from megatron_eks.rules.objects import scheduling
from megatron_eks.rules.objects.manifest_set import ManifestSet
from megatron_eks.rules.objects.node_pools import node_pools
from megatron_eks.rules.platform import role_annotations
from megatron_eks.rules.policies import subjects
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.workloads import Manifest
from tests.rules import cases
from tests.rules.test_check import check

CASES = cases.read("tables/nodes_and_pods.yaml")
RULES = (
    scheduling.selected_nodes,
    scheduling.types_of_hyperpod,
    scheduling.taints,
    scheduling.node_room,
    scheduling.nodes_enough,
)


def found_in(case):
    """Return what the rules say about the job of a case beside its templates, if it has any."""
    templates = cases.templates_of(case["templates"]) if "templates" in case else {}
    pools = node_pools(TemplateSet(templates))
    together = ManifestSet([Manifest(cases.job_of(case["job"]))], pools)
    found = [finding for rule in RULES for _, finding in rule(together)]
    return [str(each).replace("  ", " ", 1) for each in found]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_findings(case):
    """Each change gives exactly these findings, for each pod template or for the whole object."""
    replicas = "PyTorchJob/train.spec.pytorchReplicaSpecs"
    pods = [f"{replicas}.{each}.template.spec" for each in ("Master", "Worker")]
    if "as" in case["job"]:
        pods = [f"{case['job']['as']['kind']}/own.spec.template.spec"]
    expected = [case["expect"].replace(" AT", f" {pod}") for pod in pods if "expect" in case]
    expected += [case["whole"]] if "whole" in case else []
    assert found_in(case) == expected


def test_every_rule_has_a_mistake_and_a_source():
    """No rule is without a case that needs it, and none without its reason."""
    texts = " ".join(line for case in CASES for line in found_in(case))
    assert all(f"MEKS-068{number}" in texts for number in range(1, 5))
    assert all("\n" in (rule.__doc__ or "") for rule in RULES)


def test_files_of_both_kinds_are_held_against_each_other(tmp_path):
    """`meks check` of a folder with templates and manifests applies these rules."""
    templates = cases.templates_of({"set": {"Gpu.Labels": {"pool": "p4d"}}})
    for name, template in templates.items():
        (tmp_path / f"{name}.template.json").write_text(json.dumps(template))
    job = cases.job_of({"set": {"pods.nodeSelector": {"pool": "p5"}}})
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    code, lines = check(tmp_path)
    assert (code, [line.split()[1] for line in lines]) == (0, ["MEKS-0681"])


def _beside(tolerations, tasks):
    """Return what the taint of the GPU nodes makes of a plugin with these tolerations."""
    change = {"Gpu.Taints": [{"Key": "team", "Value": "llm", "Effect": "NO_SCHEDULE"}]}
    pools = node_pools(TemplateSet(cases.templates_of({"set": change})))
    image = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.7"
    pod = {"containers": [{"name": "c", "image": image}], "tolerations": tolerations}
    plugin: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "efa"},
        "spec": {"template": {"spec": pod}},
    }
    together = ManifestSet([Manifest(plugin), *map(Manifest, tasks)], pools)
    return [str(each) for _, each in scheduling.taints(together) if "DaemonSet" in str(each)]


def test_a_plugin_that_no_node_takes():
    """It is an error where jobs ask for its device, and a warning where none is at hand."""
    (sure,) = _beside([], [cases.good_job()])
    assert sure.startswith("error")
    assert "and no node with GPUs offers vpc.amazonaws.com/efa - tolerate team" in sure
    (perhaps,) = _beside([], [])
    assert perhaps.startswith("warning")
    assert "offers" not in perhaps
    assert _beside([{"key": "team", "operator": "Exists"}], [cases.good_job()]) == []


SUBJECT = "system:serviceaccount:kube-system:fsx-csi"


@pytest.mark.parametrize(
    ("condition", "namespace", "refused"),
    [
        ({"StringEquals": {"oidc.eks/id/A:sub": SUBJECT}}, "fsx", True),
        ({"StringEquals": {"oidc.eks/id/A:sub": SUBJECT}}, "kube-system", False),
        ({"StringLike": {"oidc.eks/id/A:sub": "system:serviceaccount:*:fsx-csi"}}, "fsx", False),
        ({"StringLike": {"oidc.eks/id/A:sub": ["system:serviceaccount:a:*"]}}, "fsx", True),
        ({"StringEquals": {"oidc.eks/id/A:aud": "sts.amazonaws.com"}}, "fsx", False),
        ({"StringEquals": {"oidc.eks/id/A:sub": {"Fn::Sub": "${Account}"}}}, "fsx", False),
        ({"StringEquals": {"oidc.eks/id/A:sub": SUBJECT}}, None, False),
    ],
)
def test_service_accounts_are_held_against_the_trust_of_their_role(condition, namespace, refused):
    """One that the role's condition does not admit gets no credentials; the unknown is left out."""
    principal = {"Federated": "arn:aws:iam::111122223333:oidc-provider/oidc.eks/id/A"}
    action = "sts:AssumeRoleWithWebIdentity"
    one = {"Effect": "Allow", "Principal": principal, "Action": action, "Condition": condition}
    trust = {"Version": "2012-10-17", "Statement": [one]}
    role = {"RoleName": "fsx", "AssumeRolePolicyDocument": trust}
    template: Any = {"Resources": {"Fsx": {"Type": "AWS::IAM::Role", "Properties": role}}}
    arn: dict[str, Json] = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/fsx"}
    metadata: dict[str, Json] = {"name": "fsx-csi", "annotations": arn}
    metadata |= {"namespace": namespace} if namespace else {}
    account = Manifest({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    together = ManifestSet([account], subjects=subjects(TemplateSet({"a.yaml": template})))
    told = [str(finding).replace("  ", " ", 1) for _, finding in role_annotations.trusted(together)]
    admitted = SUBJECT if "StringEquals" in condition else "system:serviceaccount:a:*"
    place = "ServiceAccount/fsx-csi.metadata.annotations.eks.amazonaws.com/role-arn"
    line = (
        f"error MEKS-0541 {place}: the role's trust admits '{admitted}', and not this account: its "
        "pods get AccessDenied - write system:serviceaccount:fsx:fsx-csi in the condition of the "
        "trust"
    )
    assert told == ([line] if refused else [])
