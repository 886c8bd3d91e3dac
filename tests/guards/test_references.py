"""Names, selectors and namespaces."""

import pytest

from megatron_eks.config.codes import Code
from tests.guards.slips import ABSENT, in_manifest, without

_FETCH = "Job/fetch-tokenizer"
_POD = "spec template spec"
_NAMESPACE = "Namespace/megatron-workshop"
_LABEL = "metadata labels pod-security.kubernetes.io"
_SELECTOR = "spec selector app.kubernetes.io/name"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_FETCH, f"{_POD} serviceAccountName", "job", Code.MISSING_OBJECT),
        (_FETCH, f"{_POD} priorityClassName", "training", Code.MISSING_OBJECT),
        ("ConfigMap/ddp-llama-3-2-1b-5fb41d77", "metadata name", "ddp", Code.MISSING_OBJECT),
        ("ConfigMap/dcgm-exporter", "data", ABSENT, Code.MISSING_OBJECT),
        (_FETCH, "metadata namespace", "megatron-workshp", Code.MISSING_OBJECT),
        (_FETCH, "metadata namespace", ABSENT, Code.MISSING_OBJECT),
        (_FETCH, "metadata name", "fetch-llama-3-1-8b", Code.DUPLICATE_OBJECT),
        (_FETCH, f"{_POD} tolerations", lambda old: [*old, old[0]], Code.DUPLICATE_IN_POD),
        ("ServiceAccount/jobs", "automountServiceAccountToken", True, Code.NEEDLESS_PRIVILEGE),
        ("DaemonSet/dcgm-exporter", "spec selector matchLabels", {"a": "b"}, Code.SELECTOR),
        ("Service/dcgm-exporter", _SELECTOR, "dcgm", Code.SELECTOR),
        ("Service/dcgm-exporter", "spec ports 0 targetPort", "http", Code.SERVICE),
        (_NAMESPACE, f"{_LABEL}/enforce", "baseline", Code.NAMESPACE_LEVEL),
        (_NAMESPACE, f"{_LABEL}/warn", "privileged", Code.NAMESPACE_LEVEL),
    ],
)
def test_a_name_that_leads_nowhere_is_reported(name, path, value, code):
    """Pods wait for what is not there, or are refused."""
    assert code.name in in_manifest(name, path, value)


def test_an_account_that_is_gone_is_missed():
    """No pod of a job is made without it."""
    assert Code.MISSING_OBJECT.name in without("ServiceAccount/jobs")


def test_other_names_are_right():
    """More tolerations, and another Pod Security version of all modes, are right."""
    more = {"key": "own", "operator": "Exists"}
    assert in_manifest(_FETCH, f"{_POD} tolerations", lambda old: [*old, more]) == set()
