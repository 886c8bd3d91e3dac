"""What gives pools with `scale: queue` the nodes that jobs in queues need, and takes them away."""

import json
from collections.abc import Collection, Mapping

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import kueue, pins
from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.charts.network import addresses, dns, policy, ports
from megatron_eks.charts.platform.operator_access import add_rights, rule
from megatron_eks.charts.pods import (
    CLUSTER_CRITICAL,
    one_pod,
    sizes,
    unprivileged_container,
    unprivileged_pod,
)
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.egress import CA_FILE
from megatron_eks.plan.cluster.queues import POOL_SCALER, scaling_of
from megatron_eks.project import ROOT

_DIRECTORY, _SETTINGS = "/opt/scaling", "settings.json"
# Where EKS Pod Identity's agent gives a pod its credentials; all else of the range is the node's.
_AGENT, _LINK_LOCAL = "169.254.170.23/32", "169.254.0.0/16"


class PoolScaler(cdk8s.Chart):
    """A pod on the system nodes, whose role in AWS may size those pools and nothing else."""

    def __init__(self, scope: Construct, chart_id: str, *, plan: ClusterPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        self._plan, self._platform = plan, plan.platform
        self._space = self._platform.system_namespace
        self._metadata = k8s.ObjectMeta(name=POOL_SCALER, namespace=self._space)
        self._labels = {"app": POOL_SCALER}
        rights = [
            # What is on a node, whosever it is, keeps it.
            rule("", ["pods"], "list"),
            rule("", ["nodes"], "list", "patch"),
            rule(kueue.GROUP, ["workloads"], "list"),
            rule(kueue.GROUP, ["workloads/status"], "patch"),
            rule(kueue.GROUP, ["admissionchecks"], "get", names=[kueue.NODES_CHECK]),
            rule(kueue.GROUP, ["admissionchecks/status"], "patch", names=[kueue.NODES_CHECK]),
        ]
        add_rights(self, POOL_SCALER, self._space, {"": rights})
        # AWS has no fixed addresses; the API server is reached by its Service and in the VPC.
        proxy = self._platform.egress.proxy_ports
        web = [port for number in (443, *proxy) for port in ports(number, "TCP")]
        policy(
            self,
            "network",
            name=POOL_SCALER,
            namespace=self._space,
            pods=k8s.LabelSelector(match_labels=self._labels),
            egress=[
                k8s.NetworkPolicyEgressRule(to=[addresses("0.0.0.0/0", _LINK_LOCAL)], ports=web),
                k8s.NetworkPolicyEgressRule(to=[addresses(_AGENT)], ports=ports(80, "TCP")),
                k8s.NetworkPolicyEgressRule(to=[dns()], ports=ports(53, "UDP", "TCP")),
            ],
        )
        self._deployment()

    def _deployment(self) -> None:
        folder = ROOT / PACKAGE.replace(".", "/")
        paths = [folder / "cluster_api.py", *sorted((folder / "scaling").glob("*.py"))]
        places = {each.name: each.relative_to(ROOT).as_posix() for each in paths}
        files = {each.name: each.read_text() for each in paths}
        files[_SETTINGS] = json.dumps(self._settings(), indent=1) + "\n"
        if self._platform.egress.ca_bundle is not None:
            files[CA_FILE] = self._platform.egress.ca_bundle
        k8s.KubeConfigMap(self, "files", metadata=self._metadata, data=files)
        # Two would each bring the nodes of the same job.
        one_pod(self, self._metadata, self._labels, self._pod(files, places), json.dumps(files))

    def _settings(self) -> dict[str, object]:
        china = self._plan.region.startswith("cn-")
        return {
            "cluster": self._plan.eks_name,
            "region": self._plan.region,
            "suffix": f"amazonaws.com{'.cn' if china else ''}",
            "check": kueue.NODES_CHECK,
            "pools": [scaling_of(pool) for pool in self._plan.scaled_pools],
        }

    def _pod(self, files: Collection[str], places: Mapping[str, str]) -> k8s.PodSpec:
        items = [k8s.KeyToPath(key=name, path=places.get(name, name)) for name in files]
        source = k8s.ConfigMapVolumeSource(name=POOL_SCALER, items=items)
        variables = dict(self._platform.egress.pod_variables)
        if CA_FILE in files:
            variables["SSL_CERT_FILE"] = f"{_DIRECTORY}/{CA_FILE}"
        variables["PYTHONPATH"] = _DIRECTORY
        container = k8s.Container(
            name=POOL_SCALER,
            image=self._platform.egress.image(pins.PYTHON_IMAGE),
            image_pull_policy="IfNotPresent",
            command=["python3", "-m", f"{PACKAGE}.scaling.loop"],
            args=[f"{_DIRECTORY}/{_SETTINGS}"],
            env=[k8s.EnvVar(name=name, value=value) for name, value in sorted(variables.items())],
            resources=sizes("50m", "128Mi", limit="1Gi"),
            security_context=unprivileged_container(),
            volume_mounts=[k8s.VolumeMount(name="files", mount_path=_DIRECTORY, read_only=True)],
        )
        return k8s.PodSpec(
            containers=[container],
            volumes=[k8s.Volume(name="files", config_map=source)],
            service_account_name=POOL_SCALER,
            automount_service_account_token=True,
            priority_class_name=CLUSTER_CRITICAL,
            security_context=unprivileged_pod(self._platform.pod_uid),
        )
