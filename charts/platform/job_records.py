"""What keeps the end of jobs, their pods and their events beside their logs."""

from collections.abc import Mapping, Sequence

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.network import addresses, policy, ports
from megatron_eks.charts.pods import one_pod, quantity, unprivileged_container, unprivileged_pod
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import ROOT

_NAME = "job-records"
_PROGRAM = "job_objects.py"
_PROGRAM_DIRECTORY = "/opt/job-records"
_VOLUMES = "/volumes"
_RBAC = "rbac.authorization.k8s.io"


class JobRecords(cdk8s.Chart):
    """A pod on the system nodes that reads the jobs' namespace, and writes on their file systems.

    Pods of jobs have no way to the API server and no token, so none of them could.
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
        k8s.KubeServiceAccount(
            self, "account", metadata=self._metadata, automount_service_account_token=False
        )
        kinds = {"": ["pods", "events"], **{each.group: [each.plural] for each in self._kinds}}
        self._role("role", self._metadata, kinds)
        # Where the events of nodes are, which have no namespace.
        space = self._platform.namespace
        name = _NAME if self._platform.first else f"{_NAME}-{space}"
        nodes = k8s.ObjectMeta(name=name, namespace="default")
        self._role("role-of-nodes", nodes, {"": ["events"]})

    def _role(
        self, construct_id: str, metadata: k8s.ObjectMeta, kinds: Mapping[str, Sequence[str]]
    ) -> None:
        """Let the pod list and watch some kinds in a namespace."""
        rules = [
            k8s.PolicyRule(api_groups=[group], resources=resources, verbs=["list", "watch"])
            for group, resources in kinds.items()
        ]
        k8s.KubeRole(self, construct_id, metadata=metadata, rules=rules)
        k8s.KubeRoleBinding(
            self,
            f"{construct_id}-binding",
            metadata=metadata,
            role_ref=k8s.RoleRef(api_group=_RBAC, kind="Role", name=str(metadata.name)),
            subjects=[
                k8s.Subject(kind="ServiceAccount", name=_NAME, namespace=self._platform.namespace)
            ],
        )

    def _deployment(self) -> None:
        program = (ROOT / "megatron_eks" / "programs" / _PROGRAM).read_text()
        k8s.KubeConfigMap(self, "program", metadata=self._metadata, data={_PROGRAM: program})
        # Two would write the same files.
        one_pod(self, self._metadata, {"app": _NAME}, program, self._pod())

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
        program = k8s.VolumeMount(name="program", mount_path=_PROGRAM_DIRECTORY, read_only=True)
        return k8s.Container(
            name=_NAME,
            image=self._platform.egress.image(pins.PYTHON_IMAGE),
            image_pull_policy="IfNotPresent",
            command=["python3", f"{_PROGRAM_DIRECTORY}/{_PROGRAM}"],
            args=[
                f"--namespace={self._platform.namespace}",
                f"--volumes={_VOLUMES}",
                *(f"--jobs={e.kind}={e.api_version}/{e.plural}" for e in self._kinds),
            ],
            resources=k8s.ResourceRequirements(
                requests={"cpu": quantity("50m"), "memory": quantity("128Mi")},
                limits={"memory": quantity("1Gi")},
            ),
            security_context=unprivileged_container(),
            volume_mounts=[*mounts, program],
        )
