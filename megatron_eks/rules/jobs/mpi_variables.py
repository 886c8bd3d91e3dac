"""Rules over variables of an MPIJob that never reach its ranks."""

import re
from collections.abc import Iterator
from itertools import pairwise

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.mpi_jobs import arguments
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import is_absent, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest

# Libraries read these in each rank; mpirun itself reads others.
_OF_RANKS = re.compile(r"(NCCL|FI|TORCH|TORCH_NCCL|OFI_NCCL|CUDA|RDMAV|GLOO)_\w+")
_SSHD = re.compile(r"(\S*/)?sshd( -\S+)*")
_NAMES = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r"(btl_tcp|oob_tcp)_if_include")
_INTERFACES = re.compile(r"[a-z]+[a-z0-9]*[0-9](,[a-z]+[a-z0-9]*)*")
# No program has these among its own arguments.
_OF_MPIRUN = frozenset(
    {"-x", "--mca", "-mca", "-np", "--np", "--bind-to", "--hostfile", "--map-by"}
)


def handed_on(manifest: Manifest) -> Iterator[Finding]:
    """Warn of variables of a launcher that mpirun does not hand on.

    Open MPI, mpirun(1), -x: ranks on other nodes start by ssh, and get OMPI_ variables and those
    that are named; kubeflow/mpi-operator v2beta1 starts its workers so.
    """
    given = manifest.spec.get("mpiImplementation")
    other = not is_absent(given) and given != "OpenMPI"
    if (manifest.group, manifest.kind) != ("kubeflow.org", "MPIJob") or other:
        return
    pods = {str(pod.path[3]): pod for pod in manifest.pods}
    launcher, worker = pods.get("Launcher"), pods.get("Worker")
    if launcher is None or worker is None or not worker.names(GPU):
        return
    for container in launcher.containers:
        words = [word for _, word in arguments(container)]
        if container.is_init or not words or ("$" in " ".join(words) and "-x" not in words):
            continue
        # A value that looks like the program ends mpirun's own words here too early.
        handed = _handed([part for _, one in container.words for part in split_words(one)])
        lost = [
            each
            for each in container.variables
            if _OF_RANKS.fullmatch(each.name) and each.name not in handed
        ]
        if lost and not _elsewhere(container):
            names = ", ".join(each.name for each in lost)
            found = f"{names}: mpirun starts the ranks of other nodes without it"
            path = (*container.path, "env", lost[0].index)
            remedy = " ".join(f"-x {each.name}" for each in lost)
            yield Finding(Code.IDLE, path, found, f"add {remedy} to mpirun", Level.WARNING)


def of_workers(manifest: Manifest) -> Iterator[Finding]:
    """Warn of variables of a worker whose ranks are children of its sshd.

    kubeflow/mpi-operator v2beta1 runs sshd in the workers; OpenSSH, sshd(8), login process: a
    session gets a basic environment, and not that of the daemon (kubeflow/trainer, issue 3427).
    """
    worker = next((pod for pod in manifest.pods if pod.path[3:4] == ("Worker",)), None)
    second = text(manifest.body.get("apiVersion")) == "kubeflow.org/v2beta1"
    second = second and manifest.spec.get("mpiImplementation") in {None, "OpenMPI"}
    if not second or manifest.kind != "MPIJob" or worker is None:
        return
    launchers = [each for pod in manifest.pods if pod is not worker for each in pod.containers]
    lines = [part for each in launchers for _, one in each.words for part in split_words(one)]
    started = any("mpirun" in each for each in lines)
    if not started or any(map(_elsewhere, launchers)):
        return
    for container in worker.containers:
        # A start of its own may hand them to every session.
        plain = not container.line or _SSHD.fullmatch(container.line)
        lost = [
            each
            for each in container.variables
            if _OF_RANKS.fullmatch(each.name) and each.name not in _handed(lines)
        ]
        if plain and lost and container.names(GPU) and not container.is_init:
            names = ", ".join(each.name for each in lost)
            found = f"{names}: sshd does not hand it to the ranks that mpirun starts through it"
            remedy = " ".join(f"-x {each.name}={each.value or '...'}" for each in lost)
            path = (*container.path, "env", lost[0].index)
            yield Finding(Code.IDLE, path, found, f"add {remedy} to mpirun", Level.WARNING)


def detached(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a value of -x that stands behind a space.

    Open MPI, mpirun(1), -x: NAME or NAME=VALUE; the first word that is no option is the program,
    and all behind it its arguments ("mpirun was unable to launch the specified application").
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            # Up to the program, as it seems; a value is taken for it.
            taken = [word for _, word in arguments(container)]
            words = [(path, part) for path, one in container.words for part in split_words(one)]
            for place, ((_, option), (_, name), (path, value)) in enumerate(
                zip(words, words[1:], words[2:], strict=False)
            ):
                further = bool(taken) and any(each in _OF_MPIRUN for _, each in words[place + 3 :])
                plain = _NAMES.fullmatch(name) and not value.startswith(("-", "$"))
                if option in {"-x", "--x"} and plain and further:
                    found = f"mpirun takes {shown(value)} as the program, and ends at once"
                    yield Finding(Code.REFUSED_IN_POD, path, found, f"write -x {name}={value}")


def interfaces(manifest: Manifest) -> Iterator[Finding]:
    """Refuse interfaces for Open MPI that no pod has.

    Open MPI, "TCP", btl_tcp_if_include: names or subnets; a pod's network is eth0 (Amazon VPC CNI),
    and with no interface left the ranks are "unable to reach each other".
    """
    on_hosts = any(pod.host_network for pod in manifest.pods)
    for pod in manifest.pods if manifest.kind == "MPIJob" and not on_hosts else ():
        for container in pod.containers:
            words = [(path, part) for path, one in container.words for part in split_words(one)]
            named = [
                (path, value)
                for (_, word), (path, value) in pairwise(words)
                if _INCLUDE.fullmatch(word)
            ]
            named += [
                ((*container.path, "env", each.index), each.value or "")
                for each in container.variables
                if _INCLUDE.fullmatch(each.name.removeprefix("OMPI_MCA_"))
            ]
            for path, value in named:
                if value and _INTERFACES.fullmatch(value) and "eth0" not in value.split(","):
                    found = f"{shown(value)} leaves out eth0, through which alone a pod reaches "
                    remedy = "write eth0, or exclude lo and docker0 by btl_tcp_if_exclude"
                    yield Finding(Code.REFUSED_VARIABLE, path, f"{found}others", remedy)


def _handed(words: list[str]) -> set[str]:
    names = set()
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word in {"-x", "--x"} and (match := _NAMES.match(after)):
            names.add(match[0])
    return names


def _elsewhere(container: Container) -> bool:
    """Tell whether another way hands variables on."""
    own = any(
        each.name.startswith(("OMPI_MCA_mca_base_env_list", "PRTE_"))
        for each in container.variables
    )
    return own or "mca_base_env_list" in container.line or "-genv" in container.line
