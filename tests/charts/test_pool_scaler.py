"""The pod that sizes pools: its program starts from its files, and it reaches what it needs."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.charts import rendered
from tests.charts.network import Peer, outside, policies, reaches

_NAME = "pool-scaler"


@pytest.fixture(scope="module")
def objects():
    """Render a cluster with a pool that jobs scale."""
    plan = rendered.other_platform(kueue=True)
    return rendered.platform(replace(plan, pools=(replace(plan.pools[0], idle_minutes=15),)))


def test_the_program_starts_from_the_files_of_the_pod(objects, tmp_path):
    """With nothing of ours beside it, as in Python's image."""
    files = rendered.only(objects, "ConfigMap", _NAME)["data"]
    spec = rendered.only(objects, "Deployment", _NAME)["spec"]["template"]["spec"]
    (volume,), (container,) = spec["volumes"], spec["containers"]
    for each in volume["configMap"]["items"]:
        path = tmp_path / each["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[each["key"]])
    folder = container["volumeMounts"][0]["mountPath"]
    assert {"name": "PYTHONPATH", "value": folder} in container["env"]
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-S", *container["command"][1:], "--help"],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "admission check" in done.stdout
    assert container["args"] == [f"{folder}/settings.json"]
    assert json.loads(files["settings.json"])["pools"] == [
        {
            "name": "p4d",
            "devices": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4},
            "max_nodes": 2,
            "idle_seconds": 900,
            "keep_until": 0.0,
        }
    ]


@pytest.mark.parametrize(
    ("address", "port", "open_"),
    [
        ("52.94.1.1", 443, True),
        ("172.20.0.1", 443, True),
        ("169.254.170.23", 80, True),
        ("169.254.169.254", 80, False),
        ("52.94.1.1", 80, False),
    ],
)
def test_it_reaches_aws_its_credentials_and_the_api_server(objects, address, port, open_):
    """And not the node's credentials."""
    pod = Peer("megatron-system", {"app": _NAME})
    assert reaches(policies(objects), pod, outside(address), (port, "TCP")) is open_


def test_only_pools_that_jobs_scale_have_the_check(objects):
    """Jobs on others start as before; without such a pool nothing of it is there."""
    queue = rendered.only(objects, "ClusterQueue")["spec"]
    assert queue["admissionChecksStrategy"] == {
        "admissionChecks": [{"name": "megatron-eks-nodes", "onFlavors": ["p4d"]}]
    }
    assert _NAME not in str(rendered.platform(rendered.other_platform(kueue=True)))
