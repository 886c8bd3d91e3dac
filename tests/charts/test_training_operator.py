"""The training operator's objects fit each other, its code, and a namespace that trusts nobody."""

import re
from collections.abc import Iterator
from dataclasses import replace

import cdk8s
import pytest
import yaml

from megatron_eks.charts.platform.job_controller import JobController
from megatron_eks.charts.platform.training_operator import training_operator
from megatron_eks.plan.cluster.platform import PlatformPlan
from tests.charts.rendered import Manifest, cluster, only, pod
from tests.charts.validation import assert_valid
from tests.upstream.modules import module_directory

_READ = {"get", "list", "watch"}
_WRITE = {"create", "update", "patch", "delete"}
_ROLES = {"ClusterRole", "Role"}

# What upstream's code declares and the chart withholds: the code does not use it for PyTorchJob.
_WITHHELD = {
    # A job is read, deleted at the end of its time, and updated in its status only.
    ("kubeflow.org", "pytorchjobs"): {"create", "update", "patch"},
    ("kubeflow.org", "pytorchjobs/status"): {"get", "patch"},
    # The PyTorchJob controller adopts no pods, so it patches none.
    ("", "pods"): {"update", "patch"},
    # A recorder writes events and never reads them.
    ("", "events"): {*_READ, "update", "delete"},
    ("autoscaling", "horizontalpodautoscalers"): {"patch"},
    # Written only with --gang-scheduler-name.
    ("scheduling.volcano.sh", "podgroups"): _WRITE,
    ("scheduling.x-k8s.io", "podgroups"): _WRITE,
}


@pytest.fixture(scope="module")
def plan() -> PlatformPlan:
    """Change what the chart takes from the plan, so that nothing in it can be written twice."""
    return replace(
        cluster().platform,
        vpc_cidrs=("10.8.0.0/16",),
        service_cidrs=("10.9.0.0/16",),
        pod_uid=4711,
    )


@pytest.fixture(scope="module")
def manifests(plan: PlatformPlan) -> list[Manifest]:
    """Return the objects of the chart."""
    return _synth(plan)


def _synth(plan: PlatformPlan) -> list[Manifest]:
    chart = JobController(cdk8s.Testing.app(), "operator", of=training_operator, platform=plan)
    manifests: list[Manifest] = cdk8s.Testing.synth(chart)
    return manifests


def _pod(manifests: list[Manifest]) -> Manifest:
    return pod(only(manifests, "Deployment")).spec


def test_every_object_is_valid(manifests: list[Manifest]):
    """The API server knows every kind and field that the chart emits."""
    for manifest in manifests:
        assert_valid(manifest)


def test_the_namespace_comes_first_and_holds_everything(manifests: list[Manifest]):
    """`kubectl apply` works through a file in order, and only known kinds have no namespace."""
    assert manifests[0]["kind"] == "Namespace"
    assert manifests[0]["metadata"]["name"] == "kubeflow"
    cluster_wide = {
        "Namespace",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingWebhookConfiguration",
    }
    elsewhere = [each for each in manifests if each["metadata"].get("namespace") != "kubeflow"]
    kinds = {each["kind"] for each in elsewhere}
    # What it may do with jobs stands where they are, which the namespaces' own file makes.
    assert kinds - cluster_wide == {"Role", "RoleBinding"}
    places = {each["metadata"].get("namespace") for each in elsewhere}
    assert places == {None, cluster().platform.namespace}


def test_another_template_is_another_pod(plan: PlatformPlan, manifests: list[Manifest]):
    """The operator reads its template once, so a change of it must restart the operator."""
    changed = _synth(replace(plan, pod_uid=4712))
    assert only(changed, "ConfigMap") != only(manifests, "ConfigMap")
    assert (
        only(changed, "Deployment")["spec"]["template"]
        != (only(manifests, "Deployment")["spec"]["template"])
    )


@pytest.mark.oracle
def test_the_webhook_is_upstreams(manifests: list[Manifest]):
    """Path, rule and policies are those that the operator's code serves."""
    upstream = _upstream("manifests/base/webhook/manifests.yaml")
    configuration = only(manifests, "ValidatingWebhookConfiguration")
    (webhook,) = configuration["webhooks"]
    (expected,) = (
        hook
        for hook in yaml.safe_load(upstream)["webhooks"]
        if "pytorchjobs" in hook["rules"][0]["resources"]
    )
    # Upstream's file holds placeholders there, which its overlays replace.
    for reference in (expected["clientConfig"]["service"], webhook["clientConfig"]["service"]):
        del reference["name"], reference["namespace"]
    assert webhook == expected


@pytest.mark.oracle
def test_names_and_flags_are_those_of_the_code(manifests: list[Manifest]):
    """What is compiled into the operator, or its default, is what the chart relies on."""
    code = "".join(map(_upstream, ("cmd/training-operator.v1/main.go", "pkg/cert/cert.go")))
    (container,) = _pod(manifests)["containers"]
    flags = [argument.removeprefix("--").split("=")[0] for argument in container["args"]]
    # The flags of the logger are declared by its library.
    assert all(f'"{flag}"' in code for flag in flags if not flag.startswith("zap-"))
    kinds = ("Secret", "Service", "ValidatingWebhookConfiguration")
    names = [only(manifests, kind)["metadata"]["name"] for kind in kinds]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    (variable,) = container["env"]
    assert all(f'"{text}"' in code for text in [*names, mounts[0], variable["name"]])
    assert f'"/{"/".join(mounts[1].split("/")[1:])}/initContainer.yaml"' in _upstream(
        "pkg/config/config.go"
    )
    assert '":8081"' in code
    assert '"webhook-server-port", 9443' in code


@pytest.mark.oracle
def test_the_rights_are_those_that_the_code_declares(manifests: list[Manifest]):
    """Nothing beyond the markers in upstream's code, and nothing missing but the named rest."""
    declared = dict(_declared_rights())
    granted: dict[tuple[str, str], set[str]] = {}
    for role in (each for each in manifests if each["kind"] in _ROLES):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                granted.setdefault((*rule["apiGroups"], resource), set()).update(rule["verbs"])
    assert all(verbs <= declared.get(key, set()) for key, verbs in granted.items())
    missing = {key: verbs - granted.get(key, set()) for key, verbs in declared.items()}
    assert {key: verbs for key, verbs in missing.items() if verbs} == _WITHHELD


def _declared_rights() -> Iterator[tuple[tuple[str, str], set[str]]]:
    marker = re.compile(r'\+kubebuilder:rbac:groups="?([\w.-]*)"?,resources=([\w/]+),verbs=(\S+)')
    for path in ("pkg/controller.v1/pytorch/pytorchjob_controller.go", "pkg/cert/cert.go"):
        for group, resource, verbs in marker.findall(_upstream(path)):
            yield (group, resource), set(verbs.split(";"))


def _upstream(path: str) -> str:
    module = module_directory("github.com/kubeflow/training-operator")
    return (module / path).read_text(encoding="utf-8")
