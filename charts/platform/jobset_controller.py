"""The controller of JobSets: it turns each into a Job and a Service, and restarts all of its ranks.

Its settings are upstream's own (kubernetes-sigs/jobset v0.12.0, config/components), but for leader
election, of which one pod has no need, and metrics, which nobody reads.
"""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.platform.crd import JobDefinition
from megatron_eks.charts.platform.operator_access import (
    READ,
    ControllerNetwork,
    ControllerRights,
    controller_pod,
    health_probe,
    restricted_namespace,
    rule,
    webhook_rules,
    webhook_service,
)
from megatron_eks.charts.pods import quantity, unprivileged_container
from megatron_eks.plan.cluster.platform import PlatformPlan

_KIND = WORKLOADS["JobSet"]

# Compiled into the controller (pkg/util/cert/cert.go), or its defaults (api/config/v1alpha1).
_NAMESPACE, _NAME = "jobset-system", "jobset-controller"
_SERVICE, _CERTIFICATE_SECRET = "jobset-webhook-service", "jobset-webhook-server-cert"
_MUTATING = "jobset-mutating-webhook-configuration"
_CERTIFICATE_DIRECTORY = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 -- compiled in
_WEBHOOK_PORT, _HEALTH_PORT = 9443, 8081

_LABELS = {"app.kubernetes.io/name": _NAME}


class JobSetController(cdk8s.Chart):
    """The controller, with the rights that JobSets of this project need."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        restricted_namespace(self, _NAMESPACE)
        JobDefinition(self, "definition", _KIND)
        ControllerRights(
            self,
            "rights",
            account=_NAME,
            namespace=_NAMESPACE,
            jobs=platform.namespace,
            secret=_CERTIFICATE_SECRET,
            in_cluster=_cluster_rules(),
            in_jobs=_job_rules(),
        )
        ControllerNetwork(
            self,
            "network",
            name=_NAME,
            namespace=_NAMESPACE,
            pods=_LABELS,
            webhook_port=_WEBHOOK_PORT,
            platform=platform,
        )
        service = k8s.ObjectMeta(name=_SERVICE, namespace=_NAMESPACE, labels=_LABELS)
        webhook_service(self, service, _LABELS, secret=_CERTIFICATE_SECRET, port=_WEBHOOK_PORT)
        self._webhooks()
        self._deployment(platform)

    def _webhooks(self) -> None:
        """Add what completes and checks JobSets; the controller fills in the certificates.

        Upstream's also ask about pods, which they change only for a kind of placement that nothing
        here uses: without them a controller that is down keeps no pod from starting again.
        """
        k8s.KubeMutatingWebhookConfiguration(
            self,
            "mutating-webhook",
            metadata=k8s.ObjectMeta(name=_MUTATING, labels=_LABELS),
            webhooks=[
                k8s.MutatingWebhook(
                    name="mjobset.kb.io",
                    client_config=_client("/mutate-jobset-x-k8s-io-v1alpha2-jobset"),
                    rules=_asked("CREATE"),
                    failure_policy="Fail",
                    side_effects="None",
                    admission_review_versions=["v1"],
                )
            ],
        )
        k8s.KubeValidatingWebhookConfiguration(
            self,
            "validating-webhook",
            metadata=k8s.ObjectMeta(name=_KIND.webhook, labels=_LABELS),
            webhooks=[
                k8s.ValidatingWebhook(
                    name="vjobset.kb.io",
                    client_config=_client("/validate-jobset-x-k8s-io-v1alpha2-jobset"),
                    rules=_asked("CREATE", "UPDATE"),
                    failure_policy="Fail",
                    side_effects="None",
                    admission_review_versions=["v1"],
                )
            ],
        )

    def _deployment(self, platform: PlatformPlan) -> None:
        k8s.KubeDeployment(
            self,
            "deployment",
            metadata=k8s.ObjectMeta(name=_NAME, namespace=_NAMESPACE, labels=_LABELS),
            spec=k8s.DeploymentSpec(
                # One, and never two at a time: without leader election both would act on each job.
                replicas=1,
                strategy=k8s.DeploymentStrategy(type="Recreate"),
                selector=k8s.LabelSelector(match_labels=_LABELS),
                template=k8s.PodTemplateSpec(
                    metadata=k8s.ObjectMeta(labels=_LABELS), spec=_pod(platform)
                ),
            ),
        )


def _client(path: str) -> k8s.WebhookClientConfig:
    service = k8s.ServiceReference(name=_SERVICE, namespace=_NAMESPACE, path=path)
    return k8s.WebhookClientConfig(service=service)


def _asked(*operations: str) -> list[k8s.RuleWithOperations]:
    group, _, version = _KIND.api_version.partition("/")
    return [
        k8s.RuleWithOperations(
            api_groups=[group],
            api_versions=[version],
            operations=list(operations),
            resources=[_KIND.plural],
        )
    ]


def _cluster_rules() -> list[k8s.PolicyRule]:
    """Let it see what it watches: it knows no namespace of its own to look in."""
    return [
        rule(_KIND.group, [_KIND.plural], *READ),
        rule("batch", ["jobs"], *READ),
        rule("", ["pods", "services", "nodes"], *READ),
        *webhook_rules("validatingwebhookconfigurations", _KIND.webhook),
        *webhook_rules("mutatingwebhookconfigurations", _MUTATING),
    ]


def _job_rules() -> list[k8s.PolicyRule]:
    return [
        # `delete` ends a job's time to live; setting owners asks for the finalizers.
        rule(_KIND.group, [_KIND.plural], "delete"),
        rule(_KIND.group, [f"{_KIND.plural}/status"], "update"),
        rule(_KIND.group, [f"{_KIND.plural}/finalizers"], "update"),
        # `update` and `patch` suspend and resume; a Job that has started forgets when, by `status`.
        rule("batch", ["jobs"], "create", "delete", "update", "patch"),
        rule("batch", ["jobs/status"], "update"),
        rule("", ["services"], "create"),
        rule("events.k8s.io", ["events"], "create", "patch"),
    ]


def _pod(platform: PlatformPlan) -> k8s.PodSpec:
    certificate = k8s.SecretVolumeSource(secret_name=_CERTIFICATE_SECRET)
    container = k8s.Container(
        name=_NAME,
        image=platform.egress.image(pins.JOBSET_IMAGE),
        image_pull_policy="IfNotPresent",
        args=["--leader-elect=false", "--metrics-bind-address=0", "--zap-devel=false"],
        ports=[
            k8s.ContainerPort(name="webhook", container_port=_WEBHOOK_PORT),
            k8s.ContainerPort(name="health", container_port=_HEALTH_PORT),
        ],
        liveness_probe=health_probe("/healthz", period_seconds=20),
        # Ready once the certificate is mounted, a minute or two after the first start.
        readiness_probe=health_probe("/readyz", period_seconds=5),
        resources=k8s.ResourceRequirements(
            # It caches every pod and Job of the cluster.
            requests={"cpu": quantity("100m"), "memory": quantity("256Mi")},
            limits={"memory": quantity("1Gi")},
        ),
        security_context=unprivileged_container(),
        volume_mounts=[
            k8s.VolumeMount(name="certificate", mount_path=_CERTIFICATE_DIRECTORY, read_only=True)
        ],
    )
    volumes = [k8s.Volume(name="certificate", secret=certificate)]
    return controller_pod(_NAME, container, volumes)
