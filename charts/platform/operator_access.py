"""What the training operator may do in the cluster, and whom it may talk to."""

from collections.abc import Mapping, Sequence

from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.charts.network import addresses, dns, policy, ports
from megatron_eks.plan.cluster.platform import PlatformPlan

_RBAC = "rbac.authorization.k8s.io"
_READ = ("get", "list", "watch")


class OperatorRights(Construct):
    """A ServiceAccount with the rights that its code uses for PyTorchJob, and no others."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        account: str,
        namespace: str,
        jobs: str,
        secret: str,
        webhook_configuration: str,
    ) -> None:
        """`jobs` is the namespace whose jobs it runs, `namespace` its own."""
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
            rules=_webhook_rules(webhook_configuration),
        )
        k8s.KubeClusterRoleBinding(
            self,
            "cluster-role-binding",
            metadata=k8s.ObjectMeta(name=account),
            role_ref=k8s.RoleRef(api_group=_RBAC, kind="ClusterRole", name=account),
            subjects=[self._subject],
        )
        self._rights_in(namespace, "role", _certificate_rules(secret))
        self._rights_in(jobs, "jobs-role", _job_rules())

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


def _job_rules() -> list[k8s.PolicyRule]:
    return [
        # `delete` ends a job's time to live; setting owners asks for the finalizers.
        _rule("kubeflow.org", ["pytorchjobs"], *_READ, "delete"),
        _rule("kubeflow.org", ["pytorchjobs/status"], "update"),
        _rule("kubeflow.org", ["pytorchjobs/finalizers"], "update"),
        _rule("", ["pods", "services"], *_READ, "create", "delete"),
        _rule("", ["events"], "create", "patch"),
        # For `elasticPolicy.metrics`. This project sets none, but without the right one such job
        # would block a thread of the operator for good.
        _rule("autoscaling", ["horizontalpodautoscalers"], *_READ, "create", "update", "delete"),
        # Wherever these kinds are installed the operator watches them, and stops if it may not.
        _rule("scheduling.volcano.sh", ["podgroups"], *_READ),
        _rule("scheduling.x-k8s.io", ["podgroups"], *_READ),
    ]


def _webhook_rules(configuration: str) -> list[k8s.PolicyRule]:
    group, resource = "admissionregistration.k8s.io", "validatingwebhookconfigurations"
    return [
        # A list cannot be limited to a name.
        _rule(group, [resource], *_READ),
        _rule(group, [resource], "update", names=[configuration]),
    ]


def _certificate_rules(secret: str) -> list[k8s.PolicyRule]:
    return [
        _rule("", ["secrets"], *_READ),
        _rule("", ["secrets"], "update", names=[secret]),
    ]


def _rule(
    group: str, resources: Sequence[str], *verbs: str, names: Sequence[str] | None = None
) -> k8s.PolicyRule:
    return k8s.PolicyRule(
        api_groups=[group], resources=resources, verbs=list(verbs), resource_names=names
    )


class OperatorNetwork(Construct):
    """Network policies: the API server both ways, name resolution, and nothing else."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        pods: Mapping[str, str],
        webhook_port: int,
        platform: PlatformPlan,
    ) -> None:
        super().__init__(scope, construct_id)
        namespace = platform.operator_namespace
        policy(self, "default-deny", namespace=namespace, pods=k8s.LabelSelector())
        # The API server is reached by its Service and answers from, and calls the webhook from,
        # network interfaces in the VPC (EKS User Guide, "Amazon EKS networking requirements").
        vpc = [addresses(cidr) for cidr in platform.vpc_cidrs]
        services = [addresses(cidr) for cidr in platform.service_cidrs]
        policy(
            self,
            "training-operator",
            namespace=namespace,
            pods=k8s.LabelSelector(match_labels=dict(pods)),
            ingress=[k8s.NetworkPolicyIngressRule(from_=vpc, ports=ports(webhook_port, "TCP"))],
            egress=[
                k8s.NetworkPolicyEgressRule(to=[*services, *vpc], ports=ports(443, "TCP")),
                k8s.NetworkPolicyEgressRule(to=[dns()], ports=ports(53, "UDP", "TCP")),
            ],
        )
