"""`meks apply` of a cluster whose file system others use: asked, refused with a reason, mended."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.ops.cluster import apply, preflight
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import overview
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from megatron_eks.project import ROOT, Project, load_project
from tests.charts import rendered
from tests.consoles import console, said

pytestmark = pytest.mark.control_plane

_HOST = "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com"
_SPACES = ("lab", "lab-system")
_OURS = {"PersistentVolume": "megatron-eks/cluster=lab"}
_KINDS = ("Namespace", "PersistentVolume", "PersistentVolumeClaim", "Job")

# As a pod of a job has it.
_LOOK: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "look", "namespace": _SPACES[0]},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "command": ["ls", "/shared"],
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "fsx-shared-pvc"}}],
    },
}


@pytest.fixture
def storage(cluster) -> Iterator[Path]:
    """Return a file system with a home of somebody, and a link that somebody has planted."""
    folder: Path = cluster.fleet.shared / _HOST
    (folder / "home").mkdir(parents=True)
    (folder / "data").symlink_to("home")
    yield folder
    # Other tests know of one file system.
    shutil.rmtree(folder)


@pytest.fixture
def lab(cluster, tmp_path):
    """Return a function that writes the storage of a second cluster's platform, and loads it."""

    def load(path: str | None) -> Project:
        config = yaml.safe_load((ROOT / "examples/existing-cluster/cluster.yaml").read_text())
        config["storage"]["lustre"]["existing"]["path"] = path
        config["platform"] = {"namespace": _SPACES[0]}
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
        found = load_project(tmp_path / "cluster.yaml", datetime.now(tz=UTC).date())
        # The first cluster's claim has its place in the usual namespace.
        platform = replace(found.cluster.platform, system_namespace=_SPACES[1])
        found = replace(found, cluster=replace(found.cluster, platform=platform))
        wanted = [
            each
            for each in rendered.platform(found.cluster, found.outputs)
            if each["kind"] in _KINDS and each["metadata"]["name"] != "kubeflow"
        ]
        (tmp_path / "platform").mkdir(exist_ok=True)
        (tmp_path / "platform" / "all.k8s.yaml").write_text(yaml.safe_dump_all(wanted))
        return found

    yield load
    client = cluster.client
    for version, kind, space in (
        ("v1", "Pod", _SPACES[0]),
        ("batch/v1", "Job", _SPACES[1]),
        *(("v1", "PersistentVolumeClaim", space) for space in _SPACES),
        ("v1", "PersistentVolume", None),
    ):
        for each in client.list(version, kind, space, labels=_OURS.get(kind, "")):
            client.delete(version, kind, each["metadata"]["name"], space, missing_ok=True)


@pytest.fixture
def run(cluster, tmp_path) -> Callable[..., str]:
    """Return a function that applies, and returns what was said, a refusal's words at its end."""

    def call(project: Project, *, yes: bool = True) -> str:
        told = console(yes=yes)
        on = Opened(Access(cluster.client, is_local=True), project, told)
        try:
            apply.run((), on, platform=tmp_path / "platform", wait_seconds=60)
        except Failure as failure:
            return f"{said(told)}{failure.found} - {failure.remedy}"
        return said(told)

    return call


def test_what_others_have_is_left_alone_and_a_folder_of_ours_is_the_way_out(
    cluster, storage, lab, run, ended
):
    """Each step says what is the matter and what to do, up to a pod that sees the folder alone."""
    client, project = cluster.client, lab(None)
    before = preflight.cluster(Access(client, is_local=True), project)
    remedy = "it makes what is missing of /shared/data, "
    assert any(remedy in one.remedy for each in before for one in each.findings)

    notice = "on fs-0123456789abcdef0, which exists, the Job makes what is missing of /shared/data,"
    unasked = run(project, yes=False)
    assert notice in unasked
    assert unasked.endswith("? [y/N] - add --yes")

    said = run(project)
    assert "/shared/data is a link, and stays as it is: put a directory there, or set" in said
    assert "not ready: Job lab-system/shared-directories-" in said
    assert said.endswith("see to that, then let the Job run again: meks fix MEKS-0853")
    assert sorted(each.name for each in storage.iterdir()) == ["data", "home"]
    unready = overview.read(client, project.cluster).not_ready
    assert any("/shared/data is a link" in each for each in unready)

    project = lab("/teams/nlp")
    said = run(project)
    assert "kubectl -n lab delete PersistentVolumeClaim fsx-shared-pvc; files stay" in said
    client.delete("v1", "PersistentVolumeClaim", "fsx-shared-pvc", "lab")
    wait_for(
        "the claim's end",
        lambda: client.find("v1", "PersistentVolumeClaim", "fsx-shared-pvc", "lab") is None,
    )
    assert run(project).endswith("the platform is ready\n")
    assert "no changes, 7 objects as they should be" in run(project)
    names = ["cache", "checkpoints", "data", "logs", "tokenizer"]
    assert sorted(each.name for each in (storage / "teams/nlp").iterdir()) == names
    pod = ended(client.create(_LOOK))
    assert cluster.logs(pod, "main").split() == names
