"""What controllers of jobs may do in the cluster, and whom they may talk to."""

from collections.abc import Mapping, Sequence

from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.charts.network import addresses, dns, policy, ports, scrapers
from megatron_eks.plan.cluster.platform import PlatformPlan

RBAC = "rbac.authorization.k8s.io"
READ = ("get", "list", "watch")

Rules = Sequence[k8s.PolicyRule]


def add_rights(
    scope: Construct,
    account: str,
    namespace: str,
    granted: Mapping[str, Rules],
    named: Mapping[str, str] = {},
) -> None:
    """Add a ServiceAccount, and what it may do by namespace; in the cluster where that is empty.

    Its roles have its name, or in some namespaces another one.
    """
    k8s.KubeServiceAccount(
        scope,
        "account",
        metadata=k8s.ObjectMeta(name=account, namespace=namespace),
        automount_service_account_token=False,
    )
    subject = k8s.Subject(kind="ServiceAccount", name=account, namespace=namespace)
    for place, rules in granted.items():
        add_role(scope, named.get(place, account), place, rules, [subject])


def add_role(
    scope: Construct, name: str, place: str, rules: Rules, subjects: Sequence[k8s.Subject]
) -> None:
    """Add a role in a namespace, or in the cluster where that is empty, and who has it."""
    metadata = k8s.ObjectMeta(name=name, namespace=place or None)
    role, binding, kind = (
        (k8s.KubeRole, k8s.KubeRoleBinding, "Role")
        if place
        else (k8s.KubeClusterRole, k8s.KubeClusterRoleBinding, "ClusterRole")
    )
    role(scope, f"role-{place}", metadata=metadata, rules=rules)
    binding(
        scope,
        f"binding-{place}",
        metadata=metadata,
        role_ref=k8s.RoleRef(api_group=RBAC, kind=kind, name=name),
        subjects=subjects,
    )


def webhook_rules(resource: str, configuration: str) -> list[k8s.PolicyRule]:
    """Let a controller put its certificate into its webhook, if it has one of the kind."""
    group = "admissionregistration.k8s.io"
    if not configuration:
        return []
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


def add_policies(
    scope: Construct,
    pods: k8s.ObjectMeta,
    asked: Sequence[int],
    platform: PlatformPlan,
    scraped: Sequence[int] = (),
) -> None:
    """Let a controller reach the API server both ways, name resolution, and nothing else."""
    space, name = str(pods.namespace), str(pods.name)
    policy(scope, "default-deny", namespace=space, pods=k8s.LabelSelector())
    # The API server is reached by its Service and answers from, and calls the webhook from,
    # network interfaces in the VPC (EKS User Guide, "Amazon EKS networking requirements").
    vpc = [addresses(cidr) for cidr in platform.vpc_cidrs]
    services = [addresses(cidr) for cidr in platform.service_cidrs]
    readers = scrapers(platform.vpc_cidrs, in_pods=platform.observed_by_pods)
    policy(
        scope,
        name,
        namespace=space,
        pods=k8s.LabelSelector(match_labels=pods.labels),
        ingress=[
            k8s.NetworkPolicyIngressRule(from_=peers, ports=ports(each, "TCP"))
            for peers, numbers in ((vpc, asked), (readers, scraped))
            for each in numbers
        ],
        egress=[
            k8s.NetworkPolicyEgressRule(to=[*services, *vpc], ports=ports(443, "TCP")),
            k8s.NetworkPolicyEgressRule(to=[dns()], ports=ports(53, "UDP", "TCP")),
        ],
    )
