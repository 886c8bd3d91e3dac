"""What the charts of controllers of jobs have in common: rights, network, webhooks and one pod."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog.workloads import WorkloadKind
from megatron_eks.charts.platform.crd import add_definition
from megatron_eks.charts.platform.operator_access import (
    READ,
    add_policies,
    add_rights,
    rule,
    webhook_rules,
)
from megatron_eks.charts.pods import (
    CLUSTER_CRITICAL,
    leave_lost_node,
    one_pod,
    sizes,
    unprivileged_container,
    unprivileged_pod,
)
from megatron_eks.plan.cluster.observability import METRICS_PORT_NAME
from megatron_eks.plan.cluster.platform import PlatformPlan

_CERTIFICATE_DIRECTORY = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 -- compiled in
_WEBHOOK_PORT, _HEALTH_PORT = 9443, 8081
# Not every image names a user; this is the one that distroless images call `nonroot`.
_USER = 65532


@dataclass(frozen=True)
class Review:
    """A question that the API server asks about objects of a kind."""

    name: str
    plural: str
    operations: Sequence[str]
    singular: str
    """As the path of its webhook ends."""
    label: tuple[str, str] | None = None
    """A label, and whether it `Exists` or `DoesNotExist` on objects about which it is asked."""
    conditions: Sequence[k8s.MatchCondition] = ()
    """What requests must be, or nobody is asked."""
    api_version: str = ""
    """Empty: as the controller's own kind."""
    within: Sequence[str] = ()
    """Namespaces; empty: all."""


@dataclass(frozen=True)
class Settings:
    """What differs from one controller to the next."""

    kind: WorkloadKind
    service: str
    """Of its webhook."""
    checks: Sequence[Review]
    args: Sequence[str]
    in_jobs: Sequence[k8s.PolicyRule] = field(repr=False)
    in_cluster: Sequence[k8s.PolicyRule] = field(default=(), repr=False)
    completes: Sequence[Review] = ()
    env: Sequence[k8s.EnvVar] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """What its pod mounts besides, by name."""
    directory: str = ""
    """Where the pod has them."""
    scraped: Sequence[int] = ()
    """Ports at which it tells its metrics."""


class JobController(cdk8s.Chart):
    """The controller, with the rights that jobs of this project need."""

    def __init__(
        self,
        scope: Construct,
        chart_id: str,
        *,
        of: Callable[[PlatformPlan], Settings],
        platform: PlatformPlan,
    ) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        settings = of(platform)
        assert settings.kind.controller is not None  # noqa: S101 -- one of its kind
        self._namespace, self._name = settings.kind.controller
        self._settings, self._labels = settings, {"app.kubernetes.io/name": self._name}
        modes = ("enforce", "audit", "warn")
        levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in modes}
        own = k8s.ObjectMeta(name=self._namespace, labels=levels)
        k8s.KubeNamespace(self, "namespace", metadata=own)
        for plural in settings.kind.definitions:
            add_definition(self, plural)
        secret = settings.kind.certificate
        granted = {
            "": [
                *settings.in_cluster,
                *webhook_rules("validatingwebhookconfigurations", settings.kind.webhook),
                *webhook_rules("mutatingwebhookconfigurations", settings.kind.mutating),
            ],
            self._namespace: [
                rule("", ["secrets"], *READ),
                rule("", ["secrets"], "update", names=[secret]),
            ],
            **dict.fromkeys(platform.namespaces, settings.in_jobs),
        }
        add_rights(self, self._name, self._namespace, granted)
        here = self._metadata(self._name, self._namespace)
        add_policies(self, here, [_WEBHOOK_PORT], platform, settings.scraped)
        # Without data, so that applying it again does not take the certificate away.
        metadata = self._metadata(secret, self._namespace)
        k8s.KubeSecret(self, "certificate", metadata=metadata)
        target = k8s.IntOrString.from_number(_WEBHOOK_PORT)
        asked = [k8s.ServicePort(name="webhook", port=443, target_port=target)]
        k8s.KubeService(
            self,
            "service",
            metadata=self._metadata(settings.service, self._namespace),
            spec=k8s.ServiceSpec(selector=self._labels, ports=asked),
        )
        self._webhooks("mutate", settings.completes, settings.kind.mutating)
        self._webhooks("validate", settings.checks, settings.kind.webhook)
        if settings.files:
            k8s.KubeConfigMap(self, "files", metadata=here, data=settings.files)
        # Never two at a time: without leader election both would act on each job.
        files = "".join(settings.files.values())
        one_pod(self, here, self._labels, self._pod(platform), files)

    def _metadata(self, name: str, namespace: str | None = None) -> k8s.ObjectMeta:
        return k8s.ObjectMeta(name=name, namespace=namespace, labels=self._labels)

    def _webhooks(self, verb: str, asked: Sequence[Review], name: str) -> None:
        """Add what completes or checks objects; the controller fills in the certificates."""
        hook, configuration = (
            (k8s.MutatingWebhook, k8s.KubeMutatingWebhookConfiguration)
            if verb == "mutate"
            else (k8s.ValidatingWebhook, k8s.KubeValidatingWebhookConfiguration)
        )
        # Each is of the class that the configuration takes, as mypy cannot see.
        hooks: list[Any] = [
            hook(
                name=each.name,
                client_config=self._client(verb, each),
                rules=self._asked(each),
                namespace_selector=_within(each.within),
                object_selector=_labelled(each.label),
                match_conditions=[*each.conditions] or None,
                failure_policy="Fail",
                side_effects="None",
                admission_review_versions=["v1"],
            )
            for each in asked
        ]
        if hooks:
            configuration(self, f"webhooks-{verb}", metadata=self._metadata(name), webhooks=hooks)

    def _client(self, verb: str, review: Review) -> k8s.WebhookClientConfig:
        group, version = self._version(review)
        # As controller-runtime makes it of a kind.
        path = f"/{verb}-{group.replace('.', '-')}-{version}-{review.singular}"
        service = k8s.ServiceReference(
            name=self._settings.service, namespace=self._namespace, path=path
        )
        return k8s.WebhookClientConfig(service=service)

    def _version(self, review: Review) -> tuple[str, str]:
        group, _, version = (review.api_version or self._settings.kind.api_version).partition("/")
        return group, version

    def _asked(self, review: Review) -> list[k8s.RuleWithOperations]:
        group, version = self._version(review)
        return [
            k8s.RuleWithOperations(
                api_groups=[group],
                api_versions=[version],
                operations=list(review.operations),
                resources=[review.plural],
            )
        ]

    def _pod(self, platform: PlatformPlan) -> k8s.PodSpec:
        certificate = k8s.SecretVolumeSource(secret_name=self._settings.kind.certificate)
        volumes = [k8s.Volume(name="certificate", secret=certificate)]
        paths = {"certificate": _CERTIFICATE_DIRECTORY}
        if self._settings.files:
            source = k8s.ConfigMapVolumeSource(name=self._name)
            volumes.append(k8s.Volume(name="template", config_map=source))
            paths["template"] = self._settings.directory
        container = k8s.Container(
            name=self._name,
            image=platform.egress.image(self._settings.kind.image),
            image_pull_policy="IfNotPresent",
            args=list(self._settings.args),
            env=list(self._settings.env) or None,
            ports=[
                k8s.ContainerPort(name="webhook", container_port=_WEBHOOK_PORT),
                k8s.ContainerPort(name="health", container_port=_HEALTH_PORT),
                *(
                    k8s.ContainerPort(name=METRICS_PORT_NAME, container_port=each)
                    for each in self._settings.scraped
                ),
            ],
            liveness_probe=_probe("/healthz", period_seconds=20),
            # Ready once the certificate is mounted, a minute or two after the first start.
            readiness_probe=_probe("/readyz", period_seconds=5),
            # It caches what it watches; of 1,000 PyTorchJobs' pods 114 MiB (measured).
            resources=sizes("100m", "256Mi", limit="1Gi"),
            security_context=unprivileged_container(),
            volume_mounts=[
                k8s.VolumeMount(name=name, mount_path=path, read_only=True)
                for name, path in paths.items()
            ],
        )
        return k8s.PodSpec(
            containers=[container],
            volumes=volumes,
            service_account_name=self._name,
            automount_service_account_token=True,
            security_context=unprivileged_pod(_USER),
            priority_class_name=CLUSTER_CRITICAL,
            tolerations=leave_lost_node(),
            termination_grace_period_seconds=10,
        )


def _probe(path: str, *, period_seconds: int) -> k8s.Probe:
    port = k8s.IntOrString.from_string("health")
    get = k8s.HttpGetAction(path=path, port=port)
    return k8s.Probe(http_get=get, period_seconds=period_seconds, timeout_seconds=3)


def _within(namespaces: Sequence[str]) -> k8s.LabelSelector | None:
    if not namespaces:
        return None
    named = k8s.LabelSelectorRequirement(
        key="kubernetes.io/metadata.name", operator="In", values=list(namespaces)
    )
    return k8s.LabelSelector(match_expressions=[named])


def _labelled(label: tuple[str, str] | None) -> k8s.LabelSelector | None:
    if label is None:
        return None
    wanted = k8s.LabelSelectorRequirement(key=label[0], operator=label[1])
    return k8s.LabelSelector(match_expressions=[wanted])
