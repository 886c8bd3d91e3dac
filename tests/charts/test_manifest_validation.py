"""The check that chart tests rely on: what the API server would refuse, it refuses."""

from typing import Any

import pytest

from tests.charts.validation import assert_valid

_CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}


def _job(*, container: dict[str, Any] | None = None, **spec: object) -> dict[str, Any]:
    pod = {"containers": [{"name": "pytorch", "image": "image", **(container or {})}]}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job", "namespace": "jobs", "labels": {"app": "training"}},
        "spec": {
            "nprocPerNode": "8",
            "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": pod}}},
            **spec,
        },
    }


def test_correct_objects_pass():
    """A correct core object and a correct job raise nothing."""
    assert_valid({**_CONFIG_MAP, "data": {"key": "value"}})
    assert_valid(_job())


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({**_CONFIG_MAP, "dta": {}}, "'dta' was unexpected"),
        ({**_CONFIG_MAP, "data": {"number": 8}}, "data.number: 8 is not of type"),
        ({**_CONFIG_MAP, "kind": "ConfigMpa"}, "no schema for v1 ConfigMpa"),
        ({**_job(), "metadata": {"name": "job", "label": {}}}, "'label' was unexpected"),
        (_job(nprocPerNode=8), "spec.nprocPerNode: 8 is not of type 'string'"),
        (_job(runPolicy={"backoffLimt": 3}), "spec.runPolicy: Additional properties"),
        (_job(runPolicy={"backoffLimit": 2**31}), "is not a 'int32'"),
        (_job(container={"imag": "image"}), "'imag' was unexpected"),
        (_job(container={"resources": {"limits": {"cpu": "1 core"}}}), "'1 core' does not match"),
        (_job(container={"env": [{"name": "A"}, {"name": "A"}]}), "env: duplicate item ['A']"),
        (
            _job(container={"ports": [{"containerPort": 1}, {"containerPort": 1}]}),
            "ports: duplicate item [1, 'TCP']",
        ),
    ],
)
def test_what_the_api_server_refuses_fails(manifest: dict[str, Any], message: str):
    """Unknown kinds and fields, wrong types and doubled list keys are failures with their place."""
    with pytest.raises(AssertionError) as failure:
        assert_valid(manifest)
    assert message in str(failure.value)
