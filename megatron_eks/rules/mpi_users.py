"""Rule over MPIJobs: whose home the keys of ssh are put into."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.values import is_absent, is_placeholder, shown, text
from megatron_eks.rules.workloads import Manifest

_PATH = ("spec", "sshAuthMountPath")
_OF_ROOT = "/root/.ssh"
# A key that is named, or copied to where ssh looks.
_ELSEWHERE = re.compile(r"rsh_args|\bssh\s+-i\b|IdentityFile|\.ssh\b|\bsu(do)?\b")


def homes(manifest: Manifest) -> Iterator[Finding]:
    """Refuse pods of an MPIJob that run as one user, and have their keys in another's home.

    kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go: sshAuthMountPath is /root/.ssh by
    default; ssh and sshd read the keys in their own user's home ("Permission denied (publickey)"),
    so examples/v2beta1/pi/pi.yaml has /home/mpiuser/.ssh beside runAsUser: 1000.
    """
    if str(manifest.body.get("apiVersion")) != "kubeflow.org/v2beta1" or manifest.kind != "MPIJob":
        return
    written = manifest.spec.get("sshAuthMountPath")
    mount = _OF_ROOT if is_absent(written) else text(written) or ""
    if is_placeholder(mount) or not mount:
        return
    at_root = mount.rstrip("/") == _OF_ROOT
    for pod in manifest.pods:
        for container in (each for each in pod.containers if not each.is_init):
            user = pod.user_of(container)
            if user is None or (user == 0) == at_root or _ELSEWHERE.search(container.line):
                continue
            found = f"the keys are in {shown(mount)}, and the {pod.path[3]} runs as user {user}: "
            found += "ssh refuses it"
            remedy = f"write {_OF_ROOT}"
            if at_root:
                remedy = f"write sshAuthMountPath: /home/mpiuser/.ssh, the home of user {user}"
            yield manifest.find(Code.MPI_WORKERS, _PATH, found, remedy)
            return
