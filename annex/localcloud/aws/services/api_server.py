"""The Kubernetes API server behind EKS clusters: its address, its nodes, and who may come in."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from moto.ec2.models import ec2_backends
from moto.eks.models import Cluster, Nodegroup, eks_backends
from moto.sts.models import sts_backends

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.aws.gate import Gate
from megatron_eks.localcloud.aws.services import nodes
from megatron_eks.localcloud.aws.services.operation import kept
from megatron_eks.localcloud.aws.signatures import RefusedError, Sent, signature
from megatron_eks.localcloud.aws.values import ACCOUNT, PARTITION, Object

# What a token is, and how long it is taken (kubernetes-sigs/aws-iam-authenticator, README, "API
# Authorization from Outside a Cluster").
_PREFIX = "k8s-aws-v1."
_LIFE = timedelta(minutes=15)
_SIGNED_HEADER = "x-k8s-aws-id"

_ADMIN_POLICY = "AmazonEKSClusterAdminPolicy"
# EKS has an authorizer of its own for policies; RBAC knows this group only.
_ADMINS = "system:masters"

_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}


@dataclass(frozen=True)
class ApiServer:
    """One API server for all clusters; its administrator's kubeconfig exists once it runs."""

    kubeconfig: Path

    def stand_behind(self, cluster: Cluster) -> None:
        """Give a cluster the address and the certificate of the API server.

        EKS takes ten minutes to make one; here whoever was fast waits for some seconds.
        """
        wait_for("the API server", self.kubeconfig.exists)
        (named,) = json.loads(self.kubeconfig.read_text())["clusters"]
        place = named["cluster"]
        cluster.endpoint = place["server"]
        authority = Path(place["certificate-authority"]).read_bytes()
        cluster.certificate_authority = {"data": base64.b64encode(authority).decode()}


def review(request: Object, gate: Gate) -> Object:
    """Answer a TokenReview: whose the token is, by the access entries of all clusters."""
    user, token = None, str(request.get("spec", {}).get("token", ""))
    for _, cluster in _clusters():
        if user is None and (arn := _caller(token, cluster.name, gate)):
            user = _user(cluster, arn)
    return {
        "apiVersion": request.get("apiVersion"),
        "kind": "TokenReview",
        "status": {"authenticated": True, "user": user} if user else {"authenticated": False},
    }


def instances() -> list[Object]:
    """Return the running nodes of all node groups, with what makes a Kubernetes node of each."""
    return [
        told
        for region, cluster in _clusters()
        for group in cluster.nodegroups.values()
        for told in _instances(region, group)
    ]


def _clusters() -> Iterator[tuple[str, Cluster]]:
    for region, backend in list(eks_backends[ACCOUNT].items()):
        for cluster in list(backend.clusters.values()):
            yield region, cluster


def _instances(region: str, group: Nodegroup) -> Iterator[Object]:
    # From moto's own objects: this is asked every second, and DescribeInstances takes 20 ms.
    for each in ec2_backends[ACCOUNT][region].all_running_instances():
        tags = {tag["key"]: tag["value"] for tag in each.get_tags()}
        named = (tags.get(nodes.CLUSTER_TAG), tags.get(nodes.GROUP_TAG))
        if named != (group.cluster_name, group.nodegroup_name):
            continue
        zone = each.placement.zone
        yield {
            "name": each.private_dns_name,
            "provider_id": f"aws:///{zone}/{each.id}",
            "instance_type": each.instance_type,
            **kept(group, "facts"),
            "zone": zone,
            "cluster": group.cluster_name,
            "group": group.nodegroup_name,
            "capacity_type": group.capacity_type or "ON_DEMAND",
            "labels": group.labels or {},
            "taints": [
                {**taint, "effect": _EFFECTS[taint["effect"]]} for taint in group.taints or ()
            ],
        }


def _caller(token: str, cluster: str, gate: Gate) -> str | None:
    """Return the ARN of who signed a token for a cluster, or None if it is none, or too old."""
    if not token.startswith(_PREFIX):
        return None
    try:
        text = token.removeprefix(_PREFIX)
        url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
        # The cluster's name is no part of the address: who asks adds it.
        headers = {"host": url.netloc, _SIGNED_HEADER: cluster}
        sent = Sent("GET", url.path, url.query, headers)
        found = signature(sent)
        gate.check(sent, found)
    except (RefusedError, ValueError):
        return None
    asked = (parse_qs(url.query).get("Action"), found.service, _SIGNED_HEADER in found.headers)
    age = datetime.now(tz=UTC) - found.time
    if asked != (["GetCallerIdentity"], "sts", True) or abs(age) > _LIFE or gate.is_pods(found):
        return None
    return str(sts_backends[ACCOUNT][PARTITION].get_caller_identity(found.key, found.region)[1])


def _user(cluster: Cluster, arn: str) -> Object | None:
    """Return whom a cluster takes a caller for, if it has an access entry for him."""
    _, _, assumed = arn.partition(":assumed-role/")
    role, _, session = assumed.partition("/")
    for principal, entry in kept(cluster, "entries").items():
        # An assumed role is told without its path.
        if arn != principal and not (assumed and principal.endswith(f"/{role}")):
            continue
        groups = list(entry["kubernetesGroups"])
        policies = kept(cluster, "policies").get(principal, {}).values()
        if any(
            each["policyArn"].endswith(f"/{_ADMIN_POLICY}")
            and each["accessScope"]["type"] == "cluster"
            for each in policies
        ):
            groups.append(_ADMINS)
        return {
            "username": entry["username"].replace("{{SessionName}}", session),
            "groups": groups,
            "extra": {"arn": [arn], "canonicalArn": [principal]},
        }
    return None
