"""What controllers of jobs run as and may do in the cluster, and whom they may talk to."""

from collections.abc import Mapping, Sequence

from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.charts.network import addresses, dns, policy, ports
from megatron_eks.charts.pods import CLUSTER_CRITICAL, leave_lost_node, unprivileged_pod
from megatron_eks.plan.cluster.platform import PlatformPlan

_RBAC = "rbac.authorization.k8s.io"
READ = ("get", "list", "watch")

# Neither controller's image names a user; this is the one that distroless images call `nonroot`.
_USER = 65532


class ControllerRights(Construct):
    """A ServiceAccount with the rights that its code uses, and no others."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        account: str,
        namespace: str,
        jobs: str,
        secret: str,
        in_cluster: Sequence[k8s.PolicyRule],
        in_jobs: Sequence[k8s.PolicyRule],
    ) -> None:
        """`jobs` is the namespace whose jobs it runs, `namespace` its own with its `secret`."""
        super().__init__(scope, construct_id)
        self._name = account
        self._subject = k8s.Subject(kind="ServiceAccount", name=account, namespace=namespace)
        k8s.KubeServiceAccount(
            self,
            "account",
            metadata=k8s.ObjectMeta(name=account, namespace=namespace),
            automount_service_account_token=False,
        )
        k8s.KubeClusterRole(
            self,
            "cluster-role",
            metadata=k8s.ObjectMeta(name=account),
            rules=in_cluster,
        )
        k8s.KubeClusterRoleBinding(
            self,
            "cluster-role-binding",
            metadata=k8s.ObjectMeta(name=account),
            role_ref=k8s.RoleRef(api_group=_RBAC, kind="ClusterRole", name=account),
            subjects=[self._subject],
        )
        self._rights_in(namespace, "role", _certificate_rules(secret))
        self._rights_in(jobs, "jobs-role", in_jobs)

    def _rights_in(self, namespace: str, role: str, rules: Sequence[k8s.PolicyRule]) -> None:
        metadata = k8s.ObjectMeta(name=self._name, namespace=namespace)
        k8s.KubeRole(self, role, metadata=metadata, rules=rules)
        k8s.KubeRoleBinding(
            self,
            f"{role}-binding",
            metadata=metadata,
            role_ref=k8s.RoleRef(api_group=_RBAC, kind="Role", name=self._name),
            subjects=[self._subject],
        )


def _certificate_rules(secret: str) -> list[k8s.PolicyRule]:
    return [rule("", ["secrets"], *READ), rule("", ["secrets"], "update", names=[secret])]


def webhook_rules(resource: str, configuration: str) -> list[k8s.PolicyRule]:
    """Let a controller put its certificate into its webhook."""
    group = "admissionregistration.k8s.io"
    return [
        # A list cannot be limited to a name.
        rule(group, [resource], *READ),
        rule(group, [resource], "update", names=[configuration]),
    ]


def rule(
    group: str, resources: Sequence[str], *verbs: str, names: Sequence[str] | None = None
) -> k8s.PolicyRule:
    """Allow some verbs for resources of a group."""
    return k8s.PolicyRule(
        api_groups=[group], resources=resources, verbs=list(verbs), resource_names=names
    )


class ControllerNetwork(Construct):
    """Network policies: the API server both ways, name resolution, and nothing else."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        namespace: str,
        pods: Mapping[str, str],
        webhook_port: int,
        platform: PlatformPlan,
    ) -> None:
        super().__init__(scope, construct_id)
        policy(self, "default-deny", namespace=namespace, pods=k8s.LabelSelector())
        # The API server is reached by its Service and answers from, and calls the webhook from,
        # network interfaces in the VPC (EKS User Guide, "Amazon EKS networking requirements").
        vpc = [addresses(cidr) for cidr in platform.vpc_cidrs]
        services = [addresses(cidr) for cidr in platform.service_cidrs]
        policy(
            self,
            name,
            namespace=namespace,
            pods=k8s.LabelSelector(match_labels=dict(pods)),
            ingress=[k8s.NetworkPolicyIngressRule(from_=vpc, ports=ports(webhook_port, "TCP"))],
            egress=[
                k8s.NetworkPolicyEgressRule(to=[*services, *vpc], ports=ports(443, "TCP")),
                k8s.NetworkPolicyEgressRule(to=[dns()], ports=ports(53, "UDP", "TCP")),
            ],
        )


def restricted_namespace(scope: Construct, name: str) -> None:
    """Add the namespace of a controller, which admits nothing but restricted pods."""
    modes = ("enforce", "audit", "warn")
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in modes}
    k8s.KubeNamespace(scope, "namespace", metadata=k8s.ObjectMeta(name=name, labels=labels))


def webhook_service(
    scope: Construct, metadata: k8s.ObjectMeta, pods: Mapping[str, str], *, secret: str, port: int
) -> None:
    """Add the Service that the API server calls, and the Secret of its certificate."""
    k8s.KubeSecret(
        scope,
        "certificate",
        # Without data, so that applying it again does not take the certificate away.
        metadata=k8s.ObjectMeta(name=secret, namespace=metadata.namespace, labels=pods),
    )
    target = k8s.IntOrString.from_number(port)
    k8s.KubeService(
        scope,
        "service",
        metadata=metadata,
        spec=k8s.ServiceSpec(
            selector=pods, ports=[k8s.ServicePort(name="webhook", port=443, target_port=target)]
        ),
    )


def health_probe(path: str, *, period_seconds: int) -> k8s.Probe:
    """Ask a controller at the port that it calls `health`."""
    return k8s.Probe(
        http_get=k8s.HttpGetAction(path=path, port=k8s.IntOrString.from_string("health")),
        period_seconds=period_seconds,
        timeout_seconds=3,
    )


def controller_pod(
    account: str, container: k8s.Container, volumes: Sequence[k8s.Volume]
) -> k8s.PodSpec:
    """Return the pod of a controller."""
    return k8s.PodSpec(
        containers=[container],
        volumes=list(volumes),
        service_account_name=account,
        automount_service_account_token=True,
        security_context=unprivileged_pod(_USER),
        priority_class_name=CLUSTER_CRITICAL,
        tolerations=leave_lost_node(),
        termination_grace_period_seconds=10,
    )
