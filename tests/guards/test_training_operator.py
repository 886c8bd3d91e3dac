"""The training operator."""

import pytest

from megatron_eks.config.codes import Code
from tests.guards.slips import ABSENT, in_manifest, without

_NAME = "training-operator"
_OPERATOR, _TEMPLATE = f"Deployment/{_NAME}", f"ConfigMap/{_NAME}"
_POD, _ARGS = "spec template spec", "spec template spec containers 0 args"
_HOOK = "ValidatingWebhookConfiguration/validator.training-operator.kubeflow.org"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_OPERATOR, "spec replicas", 2, Code.OPERATOR),
        (_OPERATOR, f"{_ARGS} 0", "--enable-scheme=tfjob", Code.OPERATOR),
        (_OPERATOR, f"{_ARGS} 1", "--namespace=other", Code.OPERATOR),
        (_OPERATOR, f"{_POD} containers 0 volumeMounts 1 mountPath", "/config", Code.OPERATOR),
        (_OPERATOR, f"{_POD} tolerations", ABSENT, Code.TOLERATION),
        (f"Role/{_NAME}", "rules 0 verbs", ["get"], Code.RIGHTS),
        (f"RoleBinding/{_NAME}", "subjects 0 namespace", "default", Code.RIGHTS),
        (_HOOK, "webhooks 0 clientConfig service path", "/validate", Code.WEBHOOK),
        (_HOOK, "webhooks 0 clientConfig service name", "operator", Code.WEBHOOK),
        (f"Service/{_NAME}", "spec ports 0 port", 8443, Code.WEBHOOK),
        (_TEMPLATE, "data initContainer.yaml", "- name: x", Code.OPERATOR),
    ],
)
def test_a_wrong_operator_is_reported(name, path, value, code):
    """No job gets pods, or each gets them twice."""
    assert code.name in in_manifest(name, path, value)


def test_its_parts_are_missed():
    """Nobody makes pods without the operator, its rights and the definition of the jobs."""
    for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
        assert Code.RIGHTS.name in without(f"{kind}/{_NAME}")
    assert Code.OPERATOR.name in without(_OPERATOR)
    assert Code.OPERATOR.name in without("CustomResourceDefinition/pytorchjobs.kubeflow.org")


def test_other_settings_are_right():
    """More threads and another right do no harm."""
    assert in_manifest(_OPERATOR, f"{_ARGS} 4", "--controller-threads=16") == set()
    more = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    assert in_manifest(f"Role/{_NAME}", "rules", lambda old: [*old, more]) == set()
