"""The training operator: it turns each PyTorchJob into pods and Services, and restarts them."""

import hashlib

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.platform.crd import JobDefinition
from megatron_eks.charts.platform.init_container import MAX_TRIES, init_container_template
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

_KIND = WORKLOADS["PyTorchJob"]
_NAME = "training-operator"
_LABELS = {"app.kubernetes.io/name": _NAME}

# The operator's defaults, except the two that are compiled in (kubeflow/training-operator v1.9.4,
# cmd/training-operator.v1/main.go and pkg/cert/cert.go).
_CERTIFICATE_SECRET = "training-operator-webhook-cert"  # noqa: S105 -- the name of a Secret
_CERTIFICATE_DIRECTORY = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 -- compiled in
_WEBHOOK_PATH = "/validate-kubeflow-org-v1-pytorchjob"
_WEBHOOK_PORT = 9443
_HEALTH_PORT = 8081
_TEMPLATE_DIRECTORY = "/etc/config"
_TEMPLATE_FILE = "initContainer.yaml"

# With its defaults (20 requests a second, bursts of 30, one thread) the operator took 13 s to make
# 256 pods and 25 s to report them, with these 4 s (measured on Kubernetes 1.35).
_REQUESTS_PER_SECOND = 200
_BURST = 400
_THREADS = 4


class TrainingOperator(cdk8s.Chart):
    """The operator for PyTorchJob alone, with the rights that this kind needs."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        namespace = platform.operator_namespace
        self._metadata = k8s.ObjectMeta(name=_NAME, namespace=namespace, labels=_LABELS)
        restricted_namespace(self, namespace)
        JobDefinition(self, "definition", _KIND.plural)
        ControllerRights(
            self,
            "rights",
            account=_NAME,
            namespace=namespace,
            jobs=platform.namespace,
            secret=_CERTIFICATE_SECRET,
            in_cluster=webhook_rules("validatingwebhookconfigurations", _KIND.webhook),
            in_jobs=_job_rules(),
        )
        ControllerNetwork(
            self,
            "network",
            name=_NAME,
            namespace=namespace,
            pods=_LABELS,
            webhook_port=_WEBHOOK_PORT,
            platform=platform,
        )
        self._webhook(namespace)
        self._deployment(self._template(platform.pod_uid), platform)

    def _webhook(self, namespace: str) -> None:
        """Add the check of each PyTorchJob; the operator fills in the certificates itself."""
        webhook_service(
            self, self._metadata, _LABELS, secret=_CERTIFICATE_SECRET, port=_WEBHOOK_PORT
        )
        service = k8s.ServiceReference(name=_NAME, namespace=namespace, path=_WEBHOOK_PATH)
        k8s.KubeValidatingWebhookConfiguration(
            self,
            "webhook",
            metadata=k8s.ObjectMeta(name=_KIND.webhook, labels=_LABELS),
            webhooks=[
                k8s.ValidatingWebhook(
                    name="validator.pytorchjob.training-operator.kubeflow.org",
                    client_config=k8s.WebhookClientConfig(service=service),
                    rules=[
                        k8s.RuleWithOperations(
                            api_groups=["kubeflow.org"],
                            api_versions=["v1"],
                            operations=["CREATE", "UPDATE"],
                            resources=["pytorchjobs"],
                        )
                    ],
                    failure_policy="Fail",
                    side_effects="None",
                    admission_review_versions=["v1"],
                )
            ],
        )

    def _template(self, user: int) -> str:
        template = init_container_template(user)
        k8s.KubeConfigMap(
            self, "init-container", metadata=self._metadata, data={_TEMPLATE_FILE: template}
        )
        return template

    def _deployment(self, template: str, platform: PlatformPlan) -> None:
        # The operator reads the template once, so a new one must be a new pod.
        digest = hashlib.sha256(template.encode()).hexdigest()
        k8s.KubeDeployment(
            self,
            "deployment",
            metadata=self._metadata,
            spec=k8s.DeploymentSpec(
                # One, and never two at a time: without leader election both would act on each job.
                replicas=1,
                strategy=k8s.DeploymentStrategy(type="Recreate"),
                selector=k8s.LabelSelector(match_labels=_LABELS),
                template=k8s.PodTemplateSpec(
                    metadata=k8s.ObjectMeta(
                        labels=_LABELS, annotations={"megatron-eks/template": digest[:16]}
                    ),
                    spec=_pod(platform),
                ),
            ),
        )


def _pod(platform: PlatformPlan) -> k8s.PodSpec:
    certificate = k8s.SecretVolumeSource(secret_name=_CERTIFICATE_SECRET)
    volumes = [
        k8s.Volume(name="certificate", secret=certificate),
        k8s.Volume(name="template", config_map=k8s.ConfigMapVolumeSource(name=_NAME)),
    ]
    return controller_pod(_NAME, _container(platform), volumes)


def _container(platform: PlatformPlan) -> k8s.Container:
    namespace = k8s.EnvVarSource(field_ref=k8s.ObjectFieldSelector(field_path="metadata.namespace"))
    return k8s.Container(
        name=_NAME,
        image=platform.egress.image(pins.TRAINING_OPERATOR_IMAGE),
        image_pull_policy="IfNotPresent",
        args=[
            "--enable-scheme=pytorchjob",
            # The rights that it has end with this namespace.
            f"--namespace={platform.namespace}",
            f"--kube-api-qps={_REQUESTS_PER_SECOND}",
            f"--kube-api-burst={_BURST}",
            f"--controller-threads={_THREADS}",
            f"--pytorch-init-container-image={platform.egress.image(pins.BUSYBOX_IMAGE)}",
            f"--pytorch-init-container-max-tries={MAX_TRIES}",
            "--zap-devel=false",
        ],
        # The name in the webhook's certificate is made of the Service's and this.
        env=[k8s.EnvVar(name="MY_POD_NAMESPACE", value_from=namespace)],
        ports=[
            k8s.ContainerPort(name="webhook", container_port=_WEBHOOK_PORT),
            k8s.ContainerPort(name="health", container_port=_HEALTH_PORT),
        ],
        liveness_probe=health_probe("/healthz", period_seconds=20),
        # Ready once the certificate is mounted, a minute or two after the first start.
        readiness_probe=health_probe("/readyz", period_seconds=5),
        resources=k8s.ResourceRequirements(
            # It caches every pod of its namespace: 114 MiB at 1,000 nodes (measured).
            requests={"cpu": quantity("100m"), "memory": quantity("256Mi")},
            limits={"memory": quantity("1Gi")},
        ),
        security_context=unprivileged_container(),
        volume_mounts=[
            k8s.VolumeMount(name="certificate", mount_path=_CERTIFICATE_DIRECTORY, read_only=True),
            k8s.VolumeMount(name="template", mount_path=_TEMPLATE_DIRECTORY, read_only=True),
        ],
    )


def _job_rules() -> list[k8s.PolicyRule]:
    return [
        # `delete` ends a job's time to live; setting owners asks for the finalizers.
        rule("kubeflow.org", ["pytorchjobs"], *READ, "delete"),
        rule("kubeflow.org", ["pytorchjobs/status"], "update"),
        rule("kubeflow.org", ["pytorchjobs/finalizers"], "update"),
        rule("", ["pods", "services"], *READ, "create", "delete"),
        rule("", ["events"], "create", "patch"),
        # For `elasticPolicy.metrics`. This project sets none, but without the right one such job
        # would block a thread of the operator for good.
        rule("autoscaling", ["horizontalpodautoscalers"], *READ, "create", "update", "delete"),
        # Wherever these kinds are installed the operator watches them, and stops if it may not.
        rule("scheduling.volcano.sh", ["podgroups"], *READ),
        rule("scheduling.x-k8s.io", ["podgroups"], *READ),
    ]


def _webhook_rules(configuration: str) -> list[k8s.PolicyRule]:
    group, resource = "admissionregistration.k8s.io", "validatingwebhookconfigurations"
    return [
        # A list cannot be limited to a name.
        rule(group, [resource], *READ),
        rule(group, [resource], "update", names=[configuration]),
    ]
