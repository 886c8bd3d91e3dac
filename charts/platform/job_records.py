"""What keeps the end of jobs, their pods and their events, and takes pods from lost nodes."""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.network import addresses, policy, ports
from megatron_eks.charts.platform.operator_access import add_rights, rule
from megatron_eks.charts.pods import one_pod, sizes, unprivileged_container, unprivileged_pod
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import ROOT

_NAME = "job-records"
_DIRECTORY, _FOLDER = "/opt/job-records", PACKAGE.replace(".", "/")
_PROGRAMS = ("cluster_api.py", "job_objects.py", "lost_pods.py")
_VOLUMES = "/volumes"
_FOLLOW = ("list", "watch")


class JobRecords(cdk8s.Chart):
    """A pod on the system nodes that reads the jobs' namespace, and writes on their file systems.

    Pods of jobs have no way to the API server and no token, so none of them could. It may end pods,
    too: those that a lost node keeps.
    """

    def __init__(self, scope: Construct, chart_id: str, *, plan: ClusterPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        self._plan, self._platform = plan, plan.platform
        self._kinds = (*self._platform.workloads, WORKLOADS["Job"])
        # Where the claims of jobs are: of an existing file system theirs have a folder alone.
        self._metadata = k8s.ObjectMeta(name=_NAME, namespace=self._platform.namespace)
        self._rights()
        # The API server is reached by its Service, and answers from addresses of the VPC.
        reached = (*self._platform.service_cidrs, *self._platform.vpc_cidrs)
        to = [addresses(cidr) for cidr in reached]
        policy(
            self,
            "network",
            name=_NAME,
            namespace=self._platform.namespace,
            pods=k8s.LabelSelector(match_labels={"app": _NAME}),
            egress=[k8s.NetworkPolicyEgressRule(to=to, ports=ports(443, "TCP"))],
        )
        self._deployment()

    def _rights(self) -> None:
        space, kinds = self._platform.namespace, [(e.group, e.plural) for e in self._kinds]
        read = [rule(group, [each], *_FOLLOW) for group, each in (("", "events"), *kinds)]
        # What a lost kubelet would do.
        pods = [rule("", ["pods"], *_FOLLOW, "delete"), rule("", ["pods/status"], "patch")]
        # Where the events of nodes are, which have no namespace.
        of_nodes = {
            "default": [rule("", ["events"], *_FOLLOW)],
            "": [rule("", ["nodes"], *_FOLLOW)],
        }
        named = {} if self._platform.first else dict.fromkeys(of_nodes, f"{_NAME}-{space}")
        add_rights(self, _NAME, space, {space: [*pods, *read], **of_nodes}, named)

    def _deployment(self) -> None:
        data = {name: (ROOT / _FOLDER / name).read_text() for name in _PROGRAMS}
        k8s.KubeConfigMap(self, "program", metadata=self._metadata, data=data)
        # Two would write the same files.
        one_pod(self, self._metadata, {"app": _NAME}, self._pod(), "".join(data.values()))

    def _pod(self) -> k8s.PodSpec:
        claims = [each.claim for each in self._plan.storage.file_systems]
        volumes = [
            k8s.Volume(
                name=claim,
                persistent_volume_claim=k8s.PersistentVolumeClaimVolumeSource(claim_name=claim),
            )
            for claim in claims
        ]
        source = k8s.ConfigMapVolumeSource(name=_NAME)
        return k8s.PodSpec(
            containers=[self._container(claims)],
            volumes=[*volumes, k8s.Volume(name="program", config_map=source)],
            service_account_name=_NAME,
            automount_service_account_token=True,
            security_context=unprivileged_pod(self._platform.pod_uid),
        )

    def _container(self, claims: list[str]) -> k8s.Container:
        mounts = [k8s.VolumeMount(name=claim, mount_path=f"{_VOLUMES}/{claim}") for claim in claims]
        place = f"{_DIRECTORY}/{_FOLDER}"
        program = k8s.VolumeMount(name="program", mount_path=place, read_only=True)
        return k8s.Container(
            name=_NAME,
            image=self._platform.egress.image(pins.PYTHON_IMAGE),
            image_pull_policy="IfNotPresent",
            command=["python3", "-m", f"{PACKAGE}.job_objects"],
            args=[
                f"--namespace={self._platform.namespace}",
                f"--volumes={_VOLUMES}",
                *(f"--jobs={e.kind}={e.api_version}/{e.plural}" for e in self._kinds),
            ],
            env=[k8s.EnvVar(name="PYTHONPATH", value=_DIRECTORY)],
            resources=sizes("50m", "128Mi", limit="1Gi"),
            security_context=unprivileged_container(),
            volume_mounts=[*mounts, program],
        )
