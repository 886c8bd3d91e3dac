"""The pod on the shared file system is a job's pod: hardened, without a GPU, and with an end."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from megatron_eks.charts.training.shared_pod import objects
from megatron_eks.guards.check import check_manifests
from megatron_eks.project import ROOT, Project
from tests.charts import rendered


def pod(of, claim, *words):
    """Return the pod of a program in our image, which comes alone."""
    (found,) = objects(of, claim, "", *words)
    return found


@pytest.fixture(scope="module")
def made():
    """Render one for a deployed cluster."""
    return pod(project(), "fsx-shared-pvc", "checkpoint_sync", ["ls", "/shared/checkpoints/a b"])


def project(**changes):
    """Return the default cluster, deployed."""
    fields = {
        "file": Path("cluster.yaml"),
        "cluster": rendered.cluster(),
        "jobs": (),
        "validation": (),
        "outputs": rendered.deployed(),
        "warnings": (),
        "allowed": (),
        "preview": (),
    }
    return Project(**{**fields, **changes})


def test_it_runs_one_program_once_on_a_system_node(made):
    """No GPU, no toleration of the GPU nodes' taint, no second try, and a deadline."""
    spec = made["spec"]
    (container,) = spec["containers"]
    assert container["command"] == ["python3", "/opt/megatron-eks/packages", "checkpoint_sync"]
    assert container["args"] == ["ls", "/shared/checkpoints/a b"]
    assert set(container["resources"]["limits"]) == {"memory"}
    assert "nvidia.com/gpu" not in {each["key"] for each in spec["tolerations"]}
    assert "nodeSelector" not in spec
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Never", 6 * 3600)
    assert spec["priorityClassName"] == "megatron-validation"


def test_it_is_as_hardened_as_the_pods_of_jobs(made):
    """Same user, no token of Kubernetes'."""
    assert made["spec"]["securityContext"]["runAsUser"] == 10001
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["serviceAccountName"] == "jobs"


def test_the_guards_find_nothing_in_it(made):
    """Beside the namespace that it goes to, which enforces Pod Security restricted."""
    assert check_manifests([*rendered.platform(), made]) == []


def test_it_mounts_the_claim_that_is_named(made):
    """With a file system a zone, a job's files are on its zone's."""
    assert made["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "fsx-shared-pvc"}
    other = pod(project(), "fsx-shared-pvc-us-east-2c", "job_logs", ["/shared/logs/x"])
    claim = other["spec"]["volumes"][0]["persistentVolumeClaim"]
    assert claim == {"claimName": "fsx-shared-pvc-us-east-2c"}


def test_an_image_with_a_digest_is_taken(made):
    """Of both images that are known; with none the pod is marked as a preview."""
    assert made["spec"]["containers"][0]["image"].endswith(f"megatron-training{rendered.DIGEST}")
    images = dict(rendered.deployed().images)
    images["megatron"] = replace(images["megatron"], preview=True)
    only = replace(rendered.deployed(), images=images)
    found = pod(project(outputs=only), "fsx-shared-pvc", "job_logs", [])
    assert "/fsdp@sha256:" in found["spec"]["containers"][0]["image"]
    preview = pod(project(outputs=rendered.outputs()), "fsx-shared-pvc", "job_logs", [])
    assert preview["metadata"]["annotations"] == {"megatron-eks/preview": "true"}


def test_the_entry_point_prints_it_as_one_line(tmp_path):
    """Words of the program may look like options."""
    (tmp_path / "cluster.yaml").write_text((ROOT / "cluster.yaml").read_text())
    words = ["claim", "", "job_logs", "/shared/logs/x", "--tail=2"]
    done = subprocess.run(  # noqa: S603 -- our own entry point
        [sys.executable, "-m", "megatron_eks.charts.training.shared_pod", *words],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "CLUSTER_CONFIG": str(Path(tmp_path, "cluster.yaml"))},
        capture_output=True,
        text=True,
        check=True,
    )
    (found,) = json.loads(done.stdout)
    assert found["spec"]["containers"][0]["args"] == ["/shared/logs/x", "--tail=2"]


def test_in_an_image_of_the_user_s_our_programs_come_beside_it():
    """As with a job of theirs: the pod mounts what the ConfigMap behind it holds."""
    own = f"registry.example.com/mine@sha256:{'0' * 64}"
    found, files = objects(project(), "fsx-shared-pvc", own, "image_check", ["--efa"])
    (container,) = found["spec"]["containers"]
    zipped = ["python3", "/etc/megatron-eks/programs.zip", "image_check"]
    assert (container["image"], container["command"]) == (own, zipped)
    (volume,) = (each for each in found["spec"]["volumes"] if "configMap" in each)
    assert volume["configMap"]["name"] == files["metadata"]["name"]
    assert [*files["binaryData"]] == ["programs.zip"]
