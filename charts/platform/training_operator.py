"""The training operator: it turns each PyTorchJob into pods and Services, and restarts them."""

from collections.abc import Sequence

from cdk8s_plus_27 import k8s

from megatron_eks.catalog import pins
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.platform.init_container import MAX_TRIES, init_container_template
from megatron_eks.charts.platform.job_controller import Review, Settings
from megatron_eks.charts.platform.operator_access import READ, rule
from megatron_eks.plan.cluster.platform import PlatformPlan

_KIND = WORKLOADS["PyTorchJob"]

# With its defaults (20 requests a second, bursts of 30, one thread) the operator took 13 s to make
# 256 pods and 25 s to report them, with these 4 s (measured on Kubernetes 1.35).
_REQUESTS_PER_SECOND = 200
_BURST = 400
_THREADS = 4


def training_operator(platform: PlatformPlan) -> Settings:
    """Return the operator's settings: for PyTorchJob alone, with the rights that it needs."""
    place = k8s.ObjectFieldSelector(field_path="metadata.namespace")
    namespace = k8s.EnvVarSource(field_ref=place)
    name = "validator.pytorchjob.training-operator.kubeflow.org"
    # It watches one namespace, or all; where it may change things ends with the jobs' own.
    several = len(platform.namespaces) > 1
    user = None if several else platform.pod_uid
    return Settings(
        kind=_KIND,
        # The operator's defaults, or compiled in (kubeflow/training-operator v1.9.4,
        # cmd/training-operator.v1/main.go and pkg/cert/cert.go).
        service="training-operator",
        checks=[Review(name, _KIND.plural, ["CREATE", "UPDATE"], "pytorchjob")],
        args=[
            "--enable-scheme=pytorchjob",
            # The rights that it has end with this namespace.
            *([] if several else [f"--namespace={platform.namespace}"]),
            f"--kube-api-qps={_REQUESTS_PER_SECOND}",
            f"--kube-api-burst={_BURST}",
            f"--controller-threads={_THREADS}",
            f"--pytorch-init-container-image={platform.egress.image(pins.BUSYBOX_IMAGE)}",
            f"--pytorch-init-container-max-tries={MAX_TRIES}",
            "--zap-devel=false",
        ],
        # The name in the webhook's certificate is made of the Service's and this.
        env=[k8s.EnvVar(name="MY_POD_NAMESPACE", value_from=namespace)],
        files={"initContainer.yaml": init_container_template(user)},
        directory="/etc/config",
        in_jobs=_job_rules(),
        in_cluster=_watching(_job_rules()) if several else (),
    )


def _watching(rules: Sequence[k8s.PolicyRule]) -> list[k8s.PolicyRule]:
    return [
        k8s.PolicyRule(api_groups=each.api_groups, resources=each.resources, verbs=list(READ))
        for each in rules
        if "watch" in each.verbs
    ]


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
