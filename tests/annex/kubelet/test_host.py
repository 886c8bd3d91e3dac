"""What a pod gets of the machine that its processes run on: no more than its image needs."""

import json
import os
from pathlib import Path

import pytest

from megatron_eks.localcloud.aws import keys
from megatron_eks.project import ROOT

pytestmark = pytest.mark.control_plane

IMAGES = ("busybox", "megatron-training", "fsdp", "eks/aws-efa-k8s-device-plugin")


def _said(cluster, ended, pod):
    return cluster.logs(ended(pod), "main")


@pytest.mark.parametrize("image", IMAGES)
def test_a_container_sees_programs_and_nothing_of_anybodys(cluster, run_pod, ended, image):
    """Neither homes nor secrets, nor what other pods and the cluster itself keep."""
    home = Path.home()
    secret = [
        *("/etc/shadow", "/etc/gshadow", "/etc/ssl/private", "/etc/sudoers", "/etc/ssh"),
        *(home / ".ssh", home / ".aws", home / ".kube", home / ".cache", home / ".bashrc"),
        *("/var/lib", "/var/log", "/opt/secret", "/mnt", "/media", "/boot", "/srv"),
        *(cluster.plane.folder, cluster.plane.kubeconfig, cluster.plane.folder / keys.FILE),
        *(cluster.fleet.shared, ROOT / "pyproject.toml", ROOT / ".git", ROOT / ".venv"),
    ]
    words = " ".join(f"'{each}'" for each in secret)
    script = f"for each in {words}; do if [ -e $each ]; then echo $each; fi; done; ls -A / /home"
    said = _said(cluster, ended, run_pod(script, container={"image": image})).split()
    own = {"bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "proc", "root"}
    own |= {"run", "sbin", "sys", "tmp", "usr", "var", "/:", "/home:"}
    # The folders on the way to an interpreter that is not the system's.
    own |= set(Path(os.path.realpath("/proc/self/exe")).parts[1:3])
    assert set(said) <= own


def test_a_container_changes_no_file_of_the_machine(cluster, run_pod, ended):
    """Programs, interpreter and system are to be read; the rest is the container's own."""
    script = """\
    cd /opt/megatron-eks
    interpreter=$(dirname "$(readlink -f python/bin/python)")
    for each in /usr/bin /etc/passwd python packages/megatron_eks standins "$interpreter"; do
      file=$each
      if [ -d $each ]; then file=$each/planted; fi
      if (: >> $file) 2>/dev/null; then echo written $file; fi
      if [ -d $each ]; then rm -f $file; fi
    done
    echo own > /tmp/own; echo own > /var/tmp/own; echo own > /root/own
    """
    pod = run_pod(script, container={"image": "fsdp"})
    assert _said(cluster, ended, pod) == ""


def test_a_pods_keys_are_not_the_administrators(cluster, run_pod, ended):
    """They are for S3; see the tests of the local AWS."""
    pod = ended(run_pod("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\\\0' '\\\\n'"))
    said = cluster.logs(pod, "main")
    assert f"AWS_ACCESS_KEY_ID={cluster.aws.keys.pods.access_key_id}" in said
    assert cluster.aws.keys.administrator.access_key_id not in said
    assert cluster.plane.token not in said


def test_a_link_in_a_volume_leads_no_mount_out_of_it(run_pod, state, tmp_path):
    """A pod may have planted it where another one mounts a part of the volume."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "word").write_text("sesame")
    plant = {
        "name": "plant",
        "image": "busybox",
        "command": ["ln", "-s", str(secret), "/volume/link"],
        "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
    }
    mounts = [{"name": "volume", "mountPath": "/mine", "subPath": "link"}]
    pod = run_pod(
        "cat /mine/word",
        container={"volumeMounts": mounts},
        initContainers=[plant],
        volumes=[{"name": "volume", "emptyDir": {}}],
    )
    waiting = state(pod, "waiting", "CreateContainerConfigError")["state"]["waiting"]
    assert waiting["message"] == "subPath link of volume volume leads out of the volume"


def test_a_link_in_a_volume_is_no_way_to_make_directories_here(run_pod, ended, tmp_path):
    """Mount points are made before the container has a root of its own."""
    plant = {
        "name": "plant",
        "image": "busybox",
        "command": ["ln", "-s", str(tmp_path), "/volume/link"],
        "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
    }
    mounts = [
        {"name": "volume", "mountPath": "/volume"},
        {"name": "other", "mountPath": "/volume/link/made"},
    ]
    pod = ended(
        run_pod(
            "true",
            container={"volumeMounts": mounts},
            initContainers=[plant],
            volumes=[{"name": "volume", "emptyDir": {}}, {"name": "other", "emptyDir": {}}],
        ),
        "Failed",
    )
    assert "a link leads out of the container" in json.dumps(pod["status"])
    assert list(tmp_path.iterdir()) == []
