"""Rules over MPIJobs: whose home the keys of ssh are put into, and who starts mpirun."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.values import is_absent, is_placeholder, shown, text
from megatron_eks.rules.workloads import EFA, Manifest

_PATH = ("spec", "sshAuthMountPath")
_OF_ROOT = "/root/.ssh"
_MPIRUN = re.compile(r"(^|[/\s;&|])(mpirun|mpiexec)($|\s)")
_LETS = re.compile(r"allow-run-as-root|OMPI_ALLOW_RUN_AS_ROOT|\bsu(do)?\b|\bgosu\b|horovodrun")
_ALLOWED = frozenset({"OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"})
# aws/deep-learning-containers: its mpirun is a script that adds the option.
_DLC = re.compile(r"\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com.*/(pytorch|tensorflow|huggingface)-tr")
# A key that is named, or copied to where ssh looks.
_ELSEWHERE = re.compile(r"rsh_args|\bssh\s+-i\b|IdentityFile|\.ssh\b|\bsu(do)?\b")


def of_root(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an mpirun that the keys make run as root, and nothing lets it.

    Open MPI, mpirun(1), "Running as root": it ends at once without --allow-run-as-root, or both
    OMPI_ALLOW_RUN_AS_ROOT and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM, which the image may set
    (kubeflow/mpi-operator, examples/v2beta1/horovod).
    """
    given = manifest.spec.get("mpiImplementation")
    mount = manifest.spec.get("sshAuthMountPath")
    if (manifest.group, manifest.kind) != ("kubeflow.org", "MPIJob") or not (
        given in (None, "OpenMPI") and mount in (None, _OF_ROOT)
    ):
        return
    # Images without EFA's installer are often mpi-operator's own, which have settings of their own.
    if not any(each.names(EFA) for each in manifest.pods):
        return
    for pod in (each for each in manifest.pods if "Launcher" in each.path):
        for container in pod.containers:
            words = [each for each in container.words if _MPIRUN.search(each[1])]
            names = {each.name for each in container.variables}
            known = bool(names & _ALLOWED) or "envFrom" in container.body
            image = text(container.body.get("image")) or ""
            said = known or _LETS.search(container.line) or _DLC.search(image)
            if container.is_init or not words or said or pod.user_of(container) not in {None, 0}:
                continue
            found = "mpirun runs as root, whose the keys are, and Open MPI ends at once"
            remedy = "add --allow-run-as-root, unless the image lets it"
            yield Finding(Code.REFUSED_IN_POD, words[0][0], found, remedy, Level.WARNING)


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
